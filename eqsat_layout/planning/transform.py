"""Re-lays-out one function or one op, without a plan: what the optimiser does to an op, as a tool of its own.

In: a PrimFunc or a Relax call, and layouts for some of its operands and results. Out: the same computation over tensors
in those layouts; layouts that are not given follow from those that are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import ir, relax, tirx

from eqsat_layout.errors import LayoutError
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.graph.legalised_calls import given, legalise_calls
from eqsat_layout.graph.public_names import without_public_name
from eqsat_layout.graph.relax_form import Request, known_type, relax_forms, relax_type
from eqsat_layout.graph.rewrite_form import write_relax
from eqsat_layout.graph.templates import Template, leaf_exprs
from eqsat_layout.graph.tensor_types import TensorTypes
from eqsat_layout.maps import Extent, Format, IndexMap, index_map_from_names, layout_separators
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.flow import Flow, complete
from eqsat_layout.tir.index_map import from_tvm
from eqsat_layout.tir.layout_rewrite import LayoutRewrite
from eqsat_layout.tir.rewrite import relayout
from eqsat_layout.tir.signature import analyse

Layout = IndexMap | Callable[..., Any] | tuple[str, str]
"""A layout of one tensor: an index map, a function such as ``lambda n, c, h, w: (n, c // 4, h, w, c % 4)`` (or a
``tvm.tirx.IndexMap``), or the names of the layout that the tensor has and of the one that it shall have."""

Layouts = Layout | Sequence[Layout | None] | Mapping[int, Layout] | None
"""A layout for each of several tensors, by position; ``None`` where it is to follow."""


def transform_layout(
    func_or_call: Any, *, result: Layouts = None, operands: Layouts = None, builder: Any = None
) -> Any:
    """A PrimFunc, or a Relax call, over operands and results in other layouts.

    A PrimFunc becomes the PrimFunc over the physical buffers, its parameters in the old order. A Relax call becomes a
    call over its operands laid out anew, each by Relax ops in place; its value is the old one in the layout ``result``.
    It is the same op with moved attributes where that says it, else a ``call_tir`` of a PrimFunc that ``builder`` (a
    ``relax.BlockBuilder``) takes in; a ``call_tir`` is looked up there. ``result`` and ``operands`` are one layout, a
    list of layouts, or a dictionary by position. What is not given follows from what is, row-major where nothing does.

    Raises :class:`LayoutError` for a layout of the wrong rank, one that is no bijection on the tensor's shape (blocks
    that do not divide included), TIR that is not understood, and a ``call_tir`` without a ``builder``.
    """
    if isinstance(func_or_call, tirx.PrimFunc):
        computation = _understood(func_or_call, "the PrimFunc")
        return relayout(func_or_call, computation, _flow(computation, operands, result))
    if isinstance(func_or_call, ir.Call) and isinstance(func_or_call.op, ir.Op):
        return _CallTransformer(func_or_call, builder).call(operands, result)
    raise LayoutError(f"expected a PrimFunc or a call of a Relax op, got {type(func_or_call).__name__}")


def read_layout(layout: Any, shape: Sequence[Extent], what: str = "the tensor") -> IndexMap:
    """``layout`` as an index map on ``shape``. Raises :class:`LayoutError` naming ``what``."""
    where = f"layout of {what}, of shape {tuple(shape)}"
    if isinstance(layout, IndexMap):
        if layout.shape != tuple(shape):
            raise LayoutError(f"{where}: the index map {layout} is for shape {layout.shape}")
        return layout
    if isinstance(layout, tuple) and len(layout) == 2 and all(isinstance(name, str) for name in layout):
        if layout_separators(layout[1]):
            raise LayoutError(f"{where}: {layout[1]} groups axes, and TIR buffers have no groups")
        found = index_map_from_names(*layout, shape)
    elif isinstance(layout, tirx.IndexMap):
        _check_rank(len(layout.initial_indices), shape, where)
        found = from_tvm(layout, shape)
    elif callable(layout):
        found = from_tvm(_from_function(layout, shape, where), shape)
    else:
        raise LayoutError(f"{where}: expected an index map, a function or two layout names, got {layout!r}")
    if found is None:
        raise LayoutError(f"{where}: {_text(layout)} is no bijection on it that splits, fuses and permutes axes")
    return found


def _text(layout: Any) -> str:
    return " to ".join(layout) if isinstance(layout, tuple) else str(layout)


def _check_rank(rank: int, shape: Sequence[Extent], where: str) -> None:
    if rank != len(shape):
        raise LayoutError(f"{where}: the map takes {rank} indices, the tensor has {len(shape)} axes")


def _from_function(function: Callable[..., Any], shape: Sequence[Extent], where: str) -> Any:
    variables = [tirx.Var(f"i{axis}", "int64") for axis in range(len(shape))]
    try:
        inspect.signature(function).bind(*variables)
    except TypeError as error:
        raise LayoutError(f"{where}: the function does not take {len(shape)} indices") from error
    indices = function(*variables)
    listed = list(indices) if isinstance(indices, tuple | list) else [indices]
    return tirx.IndexMap(variables, [tirx.IntImm("int64", i) if isinstance(i, int) else i for i in listed], None)


def _understood(func: Any, what: str) -> Computation:
    computation = analyse(func)
    if computation is None:
        raise LayoutError(f"{what} can't be re-laid-out: its TIR is not understood")
    return computation


def _flow(computation: Computation, operands: Layouts, results: Layouts) -> Flow:
    return complete(
        computation,
        _formats(computation, operands, computation.operands, "operand"),
        _formats(computation, results, computation.results, "result"),
    )


def _formats(computation: Computation, layouts: Layouts, buffers: Sequence[int], what: str) -> list[Format | None]:
    formats: list[Format | None] = [None] * len(buffers)
    for position, layout in _by_position(layouts).items():
        if not 0 <= position < len(buffers):
            raise LayoutError(f"a layout is given for {what} {position}, but there are {len(buffers)}")
        buffer = computation.buffers[buffers[position]]
        index_map = read_layout(layout, buffer.shape, f"{what} {position} ({buffer.name})")
        formats[position] = Format.make(index_map, scope=buffer.scope)
    return formats


def _by_position(layouts: Layouts) -> dict[int, Any]:
    if layouts is None:
        return {}
    if isinstance(layouts, Mapping):
        return dict(layouts)
    is_names = isinstance(layouts, tuple) and len(layouts) == 2 and all(isinstance(name, str) for name in layouts)
    if is_names or isinstance(layouts, IndexMap | tirx.IndexMap) or callable(layouts):
        return {0: layouts}
    if isinstance(layouts, str) or not isinstance(layouts, Sequence):
        raise LayoutError(f"expected a layout or a list of layouts, got {layouts!r}")
    return {position: layout for position, layout in enumerate(layouts) if layout is not None}


class _CallTransformer:
    def __init__(self, call: Any, builder: Any) -> None:
        self._builder = builder
        self._call = (builder if builder is not None else relax.BlockBuilder()).normalize(call)
        self._name = str(call.op.name)
        types = TensorTypes()
        self._operands = [self._type(types.read(leaf.ty), "an operand") for leaf in leaf_exprs(self._call)]
        ty = self._call.ty
        fields = list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]
        self._results = [self._type(types.read(field), "a result") for field in fields]
        self._symbols = types.symbols_of((*self._operands, *self._results))

    def call(self, operands: Layouts, results: Layouts) -> Any:
        func = self._func()
        computation = _understood(func, self._name)
        flow = _flow(computation, operands, results)
        request = Request(self._signature(func, computation), flow, relayout(func, computation, flow))
        (form,) = relax_forms([request])
        leaves = leaf_exprs(self._call)
        laid = [self._laid(*each) for each in zip(leaves, self._operands, flow.operands, strict=True)]
        return Template(form if form is not None else self._call_tir(request)).over(laid, typed=True)

    def _type(self, ty: TensorType | None, what: str) -> TensorType:
        if ty is None:
            raise LayoutError(f"{self._name} can't be re-laid-out: {what} is no tensor of known shape")
        return ty

    def _func(self) -> Any:
        if self._name != "relax.call_tir":
            (legalised,) = legalise_calls([self._call])
            if legalised.func is None:
                raise LayoutError(f"{self._name} can't be re-laid-out: it is not one PrimFunc over its operands")
            return legalised.func
        if self._builder is None:
            raise LayoutError("a call_tir can be re-laid-out only with the builder that has its PrimFunc")
        return self._builder.get()[self._call.args[0]]

    def _signature(self, func: Any, computation: Computation) -> Signature:
        operands, results = tuple(self._operands), tuple(self._results)
        return Signature("", self._name, operands, results, self._call, given(func), computation, symbols=self._symbols)

    def _laid(self, leaf: Any, ty: TensorType, fmt: Format) -> Any:
        calls = write_relax(LayoutRewrite.of_map(fmt.index_map), ty.dtype, dict(self._symbols))
        for call in calls:
            leaf = Template(call).over([leaf], typed=True)
        return leaf

    def _call_tir(self, request: Request) -> Any:
        if self._builder is None:
            raise LayoutError(
                f"no Relax op says {self._name} in these layouts; give a builder that takes in a PrimFunc"
            )
        func = request.func
        name = self._call.args[0].name_hint if self._name == "relax.call_tir" else self._name.rpartition(".")[2]
        global_var = self._builder.add_func(without_public_name(func), f"{name}_relaid")
        symbols = dict(self._symbols)
        operands = zip(self._operands, request.flow.operands, strict=True)
        leaves = [relax.Var(f"p{i}", relax_type(known_type(t), f, symbols)) for i, (t, f) in enumerate(operands)]
        results = zip(self._results, request.flow.results, strict=True)
        types = [relax_type(t, f, symbols) for t, f in results]
        return self._builder.normalize(
            relax.call_tir(global_var, relax.Tuple(leaves), types if types[1:] else types[0])
        )
