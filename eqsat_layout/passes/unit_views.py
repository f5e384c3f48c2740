"""Kernels that read a small tensor as it is where they read it without some axes of one element, or with more of them.

In: a Relax module of ``call_tir`` calls. Out: the same without such reshapes between: each is a call of the virtual
machine, which takes as long as a product of a few numbers (.25 us, of the 4 of a step of a recurrent network).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import tvm
from tvm import ir, relax, s_tir, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.graph.public_names import without_public_name
from eqsat_layout.passes.call_windows import KernelCall, calls_of, with_calls
from eqsat_layout.tir.blocks import over_params, with_accesses
from eqsat_layout.tir.reshape_pattern import reshape_pattern
from eqsat_layout.tir.structural import structural_map

_SMALL: Final = 4096
"""Elements from which on a call is no share of what a kernel takes."""

Shape = tuple[int, ...]


def read_through_views(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where there are none. The input is not changed."""
    builder = relax.BlockBuilder(mod)
    return with_calls(mod, builder, _Readers(mod, builder).calls)


@dataclass
class _Readers:
    mod: tvm.IRModule
    builder: Any
    _made: dict[Any, Any] = field(default_factory=dict)
    """By a callee and the shapes that it reads its operands in."""

    def calls(self, function: Any) -> dict[Any, Any]:
        """For each variable the call that defines it from now on; ``None``: it is not needed any more."""
        calls, readers = calls_of(function)
        by_var = {call.var: call for call in calls}
        sources = {call.var: call.args[0] for call in calls if self._is_view(call)}
        spared = [
            var
            for var in sources
            if isinstance(var, relax.DataflowVar)
            and readers.get(var)
            and all(reader in by_var and self._callee(by_var[reader], {var: sources[var]}) for reader in readers[var])
        ]
        known = {var: sources[var] for var in spared}
        changed: dict[Any, Any] = dict.fromkeys(spared)
        for call in calls:
            if call.var not in changed and any(arg in known for arg in call.args):
                changed[call.var] = self._read(call, known)
        return changed

    def _is_view(self, call: KernelCall) -> bool:
        function = self.mod[call.callee]
        if len(call.args) != 1 or not isinstance(call.args[0], relax.Var) or not isinstance(function, tirx.PrimFunc):
            return False
        before, after = _shape(call.args[0].ty), _shape(call.ty)
        if before is None or after is None or math.prod(after) > _SMALL or _long(before) != _long(after):
            return False
        is_block = isinstance(function.body, s_tir.SBlockRealize)  # a kernel of the user's may be anything
        return is_block and bool(reshape_pattern(function))

    def _read(self, call: KernelCall, sources: Mapping[Any, Any]) -> Any:
        callee = self._callee(call, sources)
        args = [_origin(arg, sources) for arg in call.args]
        return relax.call_tir(callee, relax.Tuple(args), call.ty)

    def _callee(self, call: KernelCall, sources: Mapping[Any, Any]) -> Any:
        """What reads the tensors that views are of; ``None`` where it uses an operand otherwise than by elements."""
        origins = {n: _shape(_origin(arg, sources).ty) for n, arg in enumerate(call.args) if arg in sources}
        key = call.callee, tuple(origins.items())
        if key not in self._made:
            try:
                function = _over_shapes(self.mod[call.callee], origins)
            except Refused:
                self._made[key] = None
            else:
                self._made[key] = self.builder.add_func(without_public_name(function), call.callee.name_hint)
        return self._made[key]


def _origin(arg: Any, sources: Mapping[Any, Any]) -> Any:
    while arg in sources:
        arg = sources[arg]
    return arg


def _over_shapes(func: Any, shapes: Mapping[int, Shape | None]) -> Any:
    """``func`` that has its parameters of these numbers in other shapes, which differ by axes of one element."""
    params: dict[int, Any] = {}
    places: dict[Any, tuple[Any, Callable[[Sequence[Any], Any], list[Any]]]] = {}
    for number, shape in shapes.items():
        old = func.params[number]
        before = _extents(old.ty.shape)
        if shape is None or before is None or _long(before) != _long(shape):
            raise Refused("it is no view of axes of one element")
        index = old.ty.shape[0].ty.dtype if old.ty.shape else "int64"
        extents = [tirx.const(extent, index) for extent in shape]
        params[number] = tirx.decl_buffer(extents, old.ty.dtype, old.name, scope=old.scope(), layout=None)
        places[old] = params[number], _moved(before, shape)

    def place(buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
        if buffer not in places:
            return buffer, indices
        new, moved = places[buffer]
        return new, moved(indices, tirx.const(0, indices[0].ty.dtype if indices else "int64"))

    def on_region(region: Any) -> Any:
        if region.source not in places:
            return region
        new, moved = places[region.source]
        one = ir.Range.from_min_extent(tirx.const(0, "int64"), tirx.const(1, "int64"))
        return tirx.BufferRegion(new, moved(list(region.region), one))

    body = structural_map(with_accesses(func.body, place), (ir.TensorRegion, on_region))
    return over_params(func, body, params)


def _moved(before: Shape, after: Shape) -> Callable[[Sequence[Any], Any], list[Any]]:
    """From what is said of each axis to the same of the other shape's, with ``none`` for those of one element."""

    def moved(own: Sequence[Any], none: Any) -> list[Any]:
        long = iter([one for one, extent in zip(own, before, strict=True) if extent != 1])
        return [none if extent == 1 else next(long) for extent in after]

    return moved


def _shape(ty: Any) -> Shape | None:
    is_known = isinstance(ty, relax.TensorType) and ty.shape is not None and hasattr(ty.shape, "values")
    return _extents(ty.shape.values) if is_known else None


def _extents(values: Any) -> Shape | None:
    return tuple(map(int, values)) if all(isinstance(value, tirx.IntImm) for value in values) else None


def _long(shape: Shape) -> Shape:
    return tuple(extent for extent in shape if extent != 1)
