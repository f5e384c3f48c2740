"""Relax ops for re-laid-out ops: ``sum(axis=[2])`` over NCHW is ``sum(axis=[1])`` over NHWC.

In: an op, the formats it runs in, and its re-laid-out PrimFunc. Out: a Relax call that means the same, if there is one.
No table of ops: the op itself is tried, its attributes as they are or with their axes and layout names moved by the
operand's index map, and a try is taken only if its own TIR computes what the PrimFunc computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax

from eqsat_layout.errors import ILL_TYPED
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.graph.legalised_calls import legalise_calls
from eqsat_layout.graph.templates import Template
from eqsat_layout.maps import GLOBAL, Format, IndexMap
from eqsat_layout.tir.extents import expr_of
from eqsat_layout.tir.flow import Flow
from eqsat_layout.tir.signature import analyse, compute_the_same


@dataclass(frozen=True)
class Request:
    """An op under a flow, and the PrimFunc that it is then."""

    signature: Signature
    flow: Flow
    func: Any

    @property
    def symbols(self) -> dict[str, Any]:
        """The symbolic variables of the types, by name."""
        return dict(self.signature.symbols)


def relax_forms(requests: Sequence[Request]) -> list[Any]:
    """For each request a template call over stand-in variables, or None. All tries are legalised together."""
    tries: list[tuple[int, Any]] = []
    for i, request in enumerate(requests):
        if any(f.scope != GLOBAL for f in (*request.flow.operands, *request.flow.results)):
            continue  # what Relax ops become has buffers in flat memory
        if isinstance(request.signature.template.op, ir.Op) and request.signature.template.op.name != "relax.call_tir":
            tries += [(i, call) for call in _tries(request)]
    found: list[Any] = [None] * len(requests)
    for (i, call), legalised in zip(tries, legalise_calls([call for _, call in tries]), strict=True):
        if found[i] is None and compute_the_same(legalised.understood(), analyse(requests[i].func)):
            found[i] = call
    return found


def relax_type(ty: TensorType, fmt: Format | None, symbols: dict[str, Any]) -> Any:
    """The Relax type of the buffer."""
    shape = ty.shape if fmt is None else fmt.physical_shape
    return relax.TensorType(relax.ShapeExpr([expr_of(e, symbols) for e in shape]), ty.dtype)


def stand_ins(request: Request) -> list[Any]:
    """A variable per operand, of the type that it has in its format."""
    pairs = zip(request.signature.operands, request.flow.operands, strict=True)
    return [relax.Var(f"p{i}", relax_type(known_type(t), f, request.symbols)) for i, (t, f) in enumerate(pairs)]


def known_type(ty: TensorType | None) -> TensorType:
    """The type of a tensor that has one: only those are re-laid-out."""
    assert ty is not None
    return ty


def _tries(request: Request) -> Iterator[Any]:
    signature, flow = request.signature, request.flow
    leaves = stand_ins(request)
    result = None
    if not signature.is_tuple:
        result = relax_type(known_type(signature.results[0]), flow.results[0], request.symbols)
    builder = relax.BlockBuilder()
    seen: list[Any] = []
    for attrs in _attribute_tries(signature.template.attrs, flow):
        if any(tvm_ffi.structural_equal(attrs, old) for old in seen):
            continue
        seen.append(attrs)
        call = Template(signature.template).over(leaves)
        try:
            call = builder.normalize(relax.Call(call.op, call.args, attrs, call.ty_args))
        except ILL_TYPED:
            continue  # the op does not take operands of these shapes
        if result is None or tvm_ffi.structural_equal(call.ty, result):
            yield call


def _attribute_tries(attrs: Any, flow: Flow) -> Iterator[Any]:
    yield attrs
    if attrs is None:
        return
    fields = [f.name for f in type(attrs).__tvm_ffi_type_info__.fields]
    values = {name: getattr(attrs, name) for name in fields}
    for fmt in (flow.operands[0], flow.results[0]) if flow.operands else ():
        moved = dict(values)
        for name in fields:
            moved[name] = _moved(name, values[name], fmt.index_map)
        if all(v is not None or values[n] is None for n, v in moved.items()):
            yield tvm.ir.make_node(type(attrs).__tvm_ffi_type_info__.type_key, **moved)


def _moved(name: str, value: Any, index_map: IndexMap) -> Any:
    """An attribute under the map: axes go where their digits go, layout names are permuted; None if they can't."""
    if name in ("axis", "axes"):
        single = isinstance(value, int)
        if value is None or not (single or all(isinstance(v, int) for v in value)):
            return value
        axes = [p for v in ([value] if single else value) for p in _positions(int(v), index_map)]
        return (axes[0] if len(axes) == 1 else None) if single else sorted(axes)
    if name.endswith("layout") and isinstance(value, str) and len(value) == len(index_map.shape):
        axes_order = index_map.permuted_axes
        return "".join(value[a] for a in axes_order) if axes_order is not None else None
    return value


def _positions(axis: int, index_map: IndexMap) -> list[int]:
    axis %= max(len(index_map.shape), 1)
    return [p for p, digits in enumerate(index_map.dims) if any(d.axis == axis for d in digits)]
