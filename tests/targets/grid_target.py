"""A target that lives in the tests: a CPU with a second memory, addressed by two indices of at most 64 each.

Convolutions like their data there. The build simulates that memory with TVM's llvm: a buffer in it becomes a flat one
of two axes, addressed by the groups that the PrimFunc states, so that wrong or lost groups give wrong numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Final

import tvm
from tvm import ir, relax, s_tir, tirx

from eqsat_layout.cost.database import Snapshot
from eqsat_layout.cost.model import CostModel, dtype_bytes
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.implementations.layouts import Blocking, Candidate, layout_candidates
from eqsat_layout.maps import GLOBAL, Format, Formats, Memory
from eqsat_layout.notes import Notes
from eqsat_layout.targets.protocol import Target
from eqsat_layout.tir.affine import Affine
from eqsat_layout.tir.axis_groups import axis_groups
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.flow import placed
from eqsat_layout.tir.structural import structural_map

GRID: Final = "global.grid"
LARGEST: Final = 64


class GridTarget(Target):
    """``kind`` is no kind of TVM's: the registry knows it."""

    kind: ClassVar[str] = "grid"

    @property
    def device(self) -> Any:
        return tvm.cpu()

    @property
    def memories(self) -> Mapping[str, Memory]:
        grid = Memory(GRID, axis_groups=2, largest=(LARGEST, LARGEST), dtypes=("float32",))
        return {GLOBAL: Memory(), GRID: grid}

    def reads(self, computation: Computation, buffer: int, fmt: Format) -> str | None:
        """Only where the index of every axis is known: no gathers."""
        accesses = [access for block in computation.blocks for access in block.reads if access.buffer == buffer]
        if any(not isinstance(index, Affine) for access in accesses for index in access.indices):
            return "it is read at places that are not known before"
        return None

    def candidates(self, computation: Computation) -> Sequence[Candidate]:
        """Channels in blocks of 4, the data in the grid, the rest anywhere."""
        found: list[Candidate] = []
        for candidate in layout_candidates(computation, Blocking((4,))):
            flow, number = candidate.flow, computation.operands[0]
            data = self.memories[GRID].placed(flow.operands[0], computation.buffers[number].dtype)
            if data is not None:
                flows = placed(computation, flow, {number: data}, self)
                found += [Candidate(f"{candidate.name} in the grid", own) for own in flows]
        return found

    def costs(self, known: Snapshot, ops: Any = ()) -> CostModel:
        return GridCosts()

    def build(self, mod: tvm.IRModule, notes: Notes) -> Any:
        return tvm.compile(simulated(mod), target=self.tvm)


def make_grid(given: Any, approx: bool) -> GridTarget:
    return GridTarget(tvm.target.Target("llvm"), approx=approx)


class GridCosts:
    """Contractions are slow unless their data lie in the grid; all else costs the bytes that it moves."""

    def run(self, op: Signature, operands: Formats, results: Formats, *, fused: frozenset[int] = frozenset()) -> float:
        if op.parts:
            return 0.0
        types, formats = (*op.operands, *op.results), (*operands, *results)
        moved = sum(_bytes(t, f) for t, f in zip(types, formats, strict=True) if t is not None and f is not None)
        is_contraction = op.computation is not None and op.computation.is_contraction
        is_slow = is_contraction and (operands[0] is None or operands[0].scope != GRID)
        return moved * (100.0 if is_slow else 1.0)

    def convert(self, tensor: TensorType, source: Format, target: Format, *, fused: bool = False) -> float:
        return 10.0 + _bytes(tensor, source) + _bytes(tensor, target)


def _bytes(tensor: TensorType, fmt: Format) -> float:
    return fmt.elements() * dtype_bytes(tensor.dtype)


# ---- the simulated memory -----------------------------------------------------------------------------------------


def simulated(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` without the grid: its buffers are tensors of two axes in ordinary memory."""
    builder = relax.BlockBuilder()
    kernels = {
        var: builder.add_func(_flat_kernel(func), str(var.name_hint))
        for var, func in mod.functions_items()
        if isinstance(func, tirx.PrimFunc)
    }
    rewriter = _Rewriter(mod, kernels)
    result = builder.get()
    for var, func in mod.functions_items():
        if isinstance(func, relax.Function):
            result[str(var.name_hint)] = rewriter.visit_expr(func)
    return result


def two_extents(shape: Sequence[Any], separators: Sequence[int]) -> list[int]:
    """The extents by which the memory addresses a buffer; fails where it holds no such buffer."""
    bounds = (0, *separators, len(shape))
    extents = [math.prod(int(e) for e in shape[low:high]) for low, high in pairwise(bounds)]
    assert len(extents) <= 2, f"{extents}: more than two indices"
    extents = [*extents, *[1] * (2 - len(extents))]
    assert all(extent <= LARGEST for extent in extents), f"{extents}: beyond the end of the memory"
    return extents


def _is_in_grid(buffer: Any) -> bool:
    return type(buffer.ty) is tirx.BufferType and str(buffer.ty.storage_scope) == GRID


def _flat_kernel(func: Any) -> Any:
    groups = axis_groups(func)
    inside = [p for p in func.params if _is_in_grid(p)]
    if not inside:
        return func
    new = {
        p: tirx.decl_buffer(two_extents(p.ty.shape, groups.get(p, ())), p.ty.dtype, p.name, layout=None) for p in inside
    }

    def indices(buffer: Any, given: Sequence[Any]) -> list[Any]:
        shape, bounds = list(buffer.ty.shape), (0, *groups.get(buffer, ()), len(given))
        found: list[Any] = []
        for low, high in pairwise(bounds):
            index = tirx.IntImm("int64", 0)
            for extent, one in zip(shape[low:high], given[low:high], strict=True):
                index = index * extent + one
            found.append(index)
        return [*found, *[tirx.IntImm("int64", 0)] * (2 - len(found))]

    def on_load(load: Any) -> Any:
        if load.source not in new:
            return load
        return tirx.BufferLoad(new[load.source], indices(load.source, list(load.indices)))

    def on_store(store: Any) -> Any:
        if store.buffer not in new:
            return store
        return tirx.BufferStore(new[store.buffer], store.value, indices(store.buffer, list(store.indices)))

    def on_block(block: Any) -> Any:
        def whole(region: Any) -> Any:
            if region.source not in new:
                return region
            buffer = new[region.source]
            return tirx.BufferRegion(buffer, [ir.Range(tirx.IntImm("int64", 0), e) for e in buffer.ty.shape])

        return s_tir.SBlock(
            block.iter_vars,
            [whole(r) for r in block.reads],
            [whole(r) for r in block.writes],
            block.name_hint,
            block.body,
            block.init,
            block.alloc_buffers,
            block.match_buffers,
            block.annotations,
        )

    rules = ((ir.expr.TensorLoad, on_load), (tirx.BufferStore, on_store), (s_tir.SBlock, on_block))
    body = structural_map(func.body, *rules)
    return tirx.PrimFunc([new.get(p, p) for p in func.params], body, ret_type=func.ret_type, attrs=func.attrs)


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):
    """Types of what lies in the grid, as :func:`_flat_kernel` makes the buffers."""

    def __init__(self, mod: Any, kernels: Mapping[Any, Any]):
        super().__init__(mod)
        self._mod, self._kernels = mod, kernels

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if call.op != ir.Op.get("relax.call_tir"):
            return call
        func = self._mod[call.args[0]]
        (out,) = call.ty_args
        types = list(out.fields) if isinstance(out, relax.TupleType) else [out]
        new: list[Any] = []
        for ty, param in zip(types, func.params[-len(types) :], strict=True):
            if not _is_in_grid(param):
                assert ty.vdevice is None, "a result in the grid that the kernel writes elsewhere"
                new.append(ty)
                continue
            assert str(ty.vdevice.memory_scope) == GRID, "a type that does not say where the result lies"
            shape = two_extents(param.ty.shape, axis_groups(func).get(param, ()))
            new.append(relax.TensorType(shape, ty.dtype))
        result = relax.TupleType(new) if isinstance(out, relax.TupleType) else new[0]
        return relax.Call(call.op, [self._kernels[call.args[0]], *list(call.args)[1:]], call.attrs, [result])
