"""Matrix products that write their result into a concat, instead of a copy of each.

In: a module of unscheduled kernels, in which a kernel concatenates what others make. Out: the same, where each product
that only such a kernel reads stores its part of the result by itself, what is done to it on the way included; what is
left of the concatenation copies the rest. Found by what the kernel reads along each axis, not by the op's name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import relax, s_tir, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.passes.call_windows import KernelCall, calls_of, one_function, window_arguments, with_calls
from eqsat_layout.targets.cuda.kernels.operands import choice
from eqsat_layout.targets.cuda.kernels.products import product_of, with_simple_indices
from eqsat_layout.targets.gpu.kernels.nests import Nest, nests_of, without_inlined_nests
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.structural import is_one_of, nodes_of, structural_map, substitute

_TOGETHER: Final = 16
"""Bytes that a thread stores at once: parts begin at multiples of it."""


def products_in_place(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where nothing is put together."""
    builder = relax.BlockBuilder(mod)
    return with_calls(mod, builder, lambda function: _calls(mod, builder, function))


def _calls(mod: tvm.IRModule, builder: Any, function: Any) -> Mapping[Any, Any]:
    """The calls of a function after the change, by variable."""
    calls, readers = calls_of(function)
    made = {call.var: call for call in calls}
    found: dict[Any, Any] = {}
    for whole in calls:
        parts = _parts_of(mod, whole)
        own = [part for part in parts if _is_own(mod, part, made.get(part.operand), readers)]
        others = [part for part in parts if part not in own]
        is_one_run = all(a.end == b.begin for a, b in itertools.pairwise(others))
        if own and is_one_run and not any(made[part.operand].var in found for part in own):
            order = {call.var: number for number, call in enumerate(calls)}
            own.sort(key=lambda part: order[part.operand])
            found |= _in_place(mod, builder, whole, [(part, made[part.operand]) for part in own], others)
    return found


@dataclass(frozen=True)
class _Part:
    """From ``begin`` to ``end`` along an axis of the result is what ``nest`` makes of ``operand`` there."""

    nest: Nest
    params: tuple[Any, ...]
    axis: int
    begin: int
    end: int
    operand: Any

    def upto(self, other: _Part) -> _Part:
        """This one and all to the end of another one."""
        return _Part(self.nest, self.params, self.axis, self.begin, other.end, None)

    @property
    def value(self) -> Any:
        """Of an element of the part, over the axes of the nest, from 0 on."""
        axes = self.nest.spatial
        along = axes[self.axis].var
        analyzer = tvm.sym.Analyzer()
        for number, axis in enumerate(axes):
            extent = self.end - self.begin if number == self.axis else int(axis.extent)
            analyzer.bind(axis.var, tvm.ir.Range(0, extent))
        (store,) = self.nest.stores
        return with_simple_indices(_decided(substitute(store.value, {along: along + self.begin}), analyzer), analyzer)

    def function(self) -> tuple[Any, list[int]]:
        """A PrimFunc that stores the part only, and the numbers of the parameters that it reads."""
        value = self.value
        reads = {load.source for load in nodes_of(value, tvm.ir.TensorLoad)}
        numbers = [number for number, param in enumerate(self.params) if param in reads]
        result = self.nest.buffers[0]
        new = {
            buffer: tirx.decl_buffer(buffer.ty.shape, buffer.ty.dtype, buffer.name, layout=None)
            for buffer in (*(self.params[number] for number in numbers), result)
        }
        loops = [tirx.Var(f"i{number}", axis.var.ty.dtype) for number, axis in enumerate(self.nest.spatial)]
        domains = [tvm.ir.Range(0, axis.extent) for axis in self.nest.spatial]
        along = self.nest.spatial[self.axis].var
        dtype = along.ty.dtype
        domains[self.axis] = tvm.ir.Range(tirx.IntImm(dtype, 0), tirx.IntImm(dtype, self.end - self.begin))
        places = [axis.var for axis in self.nest.spatial]
        axes = [
            tirx.IterVar(domain, place, tirx.IterVar.DataPar) for domain, place in zip(domains, places, strict=True)
        ]
        indices = [place + self.begin if place.same_as(along) else place for place in places]
        store = tirx.BufferStore(new[result], substitute(value, new), indices)
        loads = [(load.source, load.indices) for load in nodes_of(store.value, tvm.ir.TensorLoad)]
        regions = [_region(*one) for one in (*loads, (new[result], indices))]
        block = s_tir.SBlock(axes, regions[:-1], regions[-1:], f"{self.nest.name}_part", store)
        body: Any = s_tir.SBlockRealize(loops, True, block)
        for loop, domain in reversed(list(zip(loops, domains, strict=True))):
            body = tirx.For(loop, domain.min, domain.extent, tirx.ForKind.SERIAL, body)
        root = s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", body))
        params = [*(new[self.params[number]] for number in numbers), new[result]]
        attrs = tvm.ir.make_node("ir.DictAttrs", **{"tirx.noalias": True})
        return s_tir.renew_defs(tirx.PrimFunc(params, root, attrs=attrs)), numbers


def _region(buffer: Any, indices: Sequence[Any]) -> Any:
    return tirx.BufferRegion(buffer, [tvm.ir.Range.from_min_extent(index, 1) for index in indices])


def _parts_of(mod: tvm.IRModule, whole: KernelCall) -> list[_Part]:
    """The parts that a call concatenates, in order; none where it does something else."""
    func = mod[whole.callee]
    params = list(func.params)
    if len(params) != len(whole.args) + 1 or not all(_is_static(param) for param in params):
        return []
    try:
        nests = without_inlined_nests(nests_of(func), params)
    except Refused:
        return []
    if len(nests) != 1 or nests[0].reduced or not nests[0].is_plain:
        return []
    shape = [int(extent) for extent in params[-1].ty.shape]
    for axis in range(len(shape)):
        alike = [
            number
            for number, param in enumerate(params[:-1])
            if len(param.ty.shape) == len(shape)
            and all(int(e) == shape[i] for i, e in enumerate(param.ty.shape) if i != axis)
        ]
        extents = [int(params[number].ty.shape[axis]) for number in alike]
        if len(alike) > 1 and sum(extents) == shape[axis]:
            for order in (alike, alike[::-1]):
                ends = list(itertools.accumulate(int(params[number].ty.shape[axis]) for number in order))
                parts = [
                    _Part(
                        nests[0],
                        tuple(params[:-1]),
                        axis,
                        end - int(params[number].ty.shape[axis]),
                        end,
                        whole.args[number],
                    )
                    for end, number in zip(ends, order, strict=True)
                ]
                if all(
                    _is_of(part, params[number], [params[n] for n in alike])
                    for part, number in zip(parts, order, strict=True)
                ):
                    return parts
    return []


def _is_static(param: Any) -> bool:
    return type(param.ty) is tirx.BufferType and all(as_int(extent) is not None for extent in param.ty.shape)


def _is_of(part: _Part, own: Any, all_of_them: Sequence[Any]) -> bool:
    """Of all that are put together the part reads its own only, each element at its own place."""
    loads = nodes_of(part.value, tvm.ir.TensorLoad)
    places = [axis.var for axis in part.nest.spatial]
    mine = [load for load in loads if load.source.same_as(own)]
    others = [load for load in loads if not load.source.same_as(own) and is_one_of(load.source, all_of_them)]
    return bool(mine) and not others and all(_is_at(load.indices, places, own) for load in mine)


def _is_at(indices: Sequence[Any], places: Sequence[Any], buffer: Any) -> bool:
    triples = zip(indices, places, buffer.ty.shape, strict=True)
    return all(index.same_as(place) or int(extent) == 1 for index, place, extent in triples)


def _decided(value: Any, analyzer: Any) -> Any:
    """Without the choices whose conditions are known."""

    def decided(node: Any) -> Any:
        found = choice(node)
        if found is None:
            return node
        condition, chosen, other = found
        known = as_int(analyzer.simplify(condition))
        return node if known is None else chosen if known else other

    def on_call(call: Any) -> Any:
        return decided(call) if is_choice(call) else call

    return structural_map(value, (tirx.Select, decided), (tvm.ir.Call, on_call))


def _is_own(mod: tvm.IRModule, part: _Part, maker: KernelCall | None, readers: Mapping[Any, Any]) -> bool:
    """A product makes it, and nobody else reads it."""
    if maker is None or not isinstance(maker.var, relax.DataflowVar) or len(readers[maker.var]) != 1:
        return False
    result = part.nest.buffers[0]
    shape = [int(extent) for extent in result.ty.shape]
    inner = math.prod(shape[part.axis + 1 :]) * max(1, tvm.DataType(str(result.ty.dtype)).bits // 8)
    if any(size * inner % _TOGETHER for size in (part.begin, part.end, shape[part.axis])):
        return False
    try:
        product_of(mod[maker.callee])
    except Refused:
        return False
    return True


def _in_place(
    mod: tvm.IRModule, builder: Any, whole: KernelCall, own: Sequence[tuple[_Part, KernelCall]], others: Sequence[_Part]
) -> dict[Any, Any]:
    """Calls by variable: the first one makes the result, the next ones write into it."""
    known = {whole.var, *(maker.var for _, maker in own)}
    found: dict[Any, Any] = {}
    result: Any = None
    for part, maker in own:
        made = _stored_by(mod, builder, part, maker, whole)
        if made is None or any(arg in known for arg in made[1]):
            return {}
        found[maker.var] = _written(whole.ty, *made, result)
        result = maker.var
    if others:
        func, numbers = others[0].upto(others[-1]).function()
        callee = builder.add_func(func, f"{whole.callee.name_hint}_rest")
        result = _written(whole.ty, callee, [whole.args[number] for number in numbers], result)
    return {**found, whole.var: result}


def _stored_by(
    mod: tvm.IRModule, builder: Any, part: _Part, maker: KernelCall, whole: KernelCall
) -> tuple[Any, Sequence[Any]] | None:
    """The product that stores its part, and what it is given; ``None``: it is no such product any more."""
    func, numbers = part.function()
    args = [whole.args[number] for number in numbers]
    if any(isinstance(arg, relax.DataflowVar) and not arg.same_as(maker.var) for arg in args):
        return None  # it may not be there yet
    pair = relax.BlockBuilder(tvm.IRModule({maker.callee: mod[maker.callee]}))
    window = [maker, KernelCall(whole.var, pair.add_func(func, "part"), tuple(args), whole.ty)]
    merged = one_function(pair.get(), window)
    try:
        product_of(merged)
    except Refused:
        return None
    return builder.add_func(merged, f"{maker.callee.name_hint}_part"), window_arguments(window)


def _written(ty: Any, callee: Any, args: Sequence[Any], result: Any) -> Any:
    """A call that makes the result, or writes into what there is of it."""
    if result is None:
        return relax.call_tir(callee, relax.Tuple(list(args)), ty)
    stand_in = relax.Var("result", ty)  # which ``result`` has as soon as its own call is another one
    call = relax.op.call_tir_inplace(callee, relax.Tuple([*args, stand_in]), len(args), ty)
    return relax.Call(call.op, [callee, relax.Tuple([*args, result])], call.attrs, call.ty_args)
