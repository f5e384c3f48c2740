"""Concats without copies: the kernels that make the parts write them into the result.

In: a Relax module of ``call_tir`` calls. Out: the same, in which the result of a concat is allocated before its parts,
whose kernels write into it one after the other (``call_tir_inplace``); other readers of a part read it there. Parts
that can't be written in place are copied as before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import tvm
from tvm import relax, te, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.passes.call_windows import KernelCall, calls_of
from eqsat_layout.targets.cpu.places.box import Box, in_boxes
from eqsat_layout.targets.cpu.places.concat_boxes import boxes_in_concat

_WORTH: Final = 0.25
"""Of the elements, which parts must have that are not copied any more."""

_Boxes = Mapping[int, Box]


def concat_in_place(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where nothing is put together. The input is not changed."""
    builder = relax.BlockBuilder(mod)
    kernels = _Kernels(mod, builder)
    is_changed = False
    for name, function in mod.functions.items():
        plan = _planned(function, kernels) if isinstance(function, relax.Function) else _Plan()
        if plan.wholes:
            builder.update_func(name, _Writer(mod, plan, kernels).visit_expr(function))
            is_changed = True
    return relax.transform.DeadCodeElimination()(builder.get()) if is_changed else mod


@dataclass
class _Whole:
    """A tensor that is put together: ``var = call``. ``current``: the variable that holds it, once there is one."""

    call: KernelCall
    boxes: _Boxes
    current: Any = None


@dataclass
class _Plan:
    """``wholes`` by the variable of each; ``parts``: by the variable of a part that is written in place its whole;
    ``moved``: by the variable of a call the places of its operands, and of its result, by number of a parameter."""

    wholes: dict[Any, _Whole] = field(default_factory=dict)
    parts: dict[Any, _Whole] = field(default_factory=dict)
    moved: dict[Any, dict[int, Box]] = field(default_factory=dict)


class _Kernels:
    """PrimFuncs over larger tensors, each made once."""

    def __init__(self, mod: tvm.IRModule, builder: Any) -> None:
        self._mod, self._builder = mod, builder
        self._concat_boxes: dict[Any, _Boxes | None] = {}
        self._boxed: dict[Any, Any] = {}

    def concat_boxes(self, call: KernelCall) -> _Boxes | None:
        """Where its operands lie in its result; ``None`` if it is not put together of these."""
        if call.callee not in self._concat_boxes:
            self._concat_boxes[call.callee] = boxes_in_concat(self._mod[call.callee])
        return self._concat_boxes[call.callee]

    def boxed(self, callee: Any, boxes: _Boxes) -> Any:
        """The kernel over larger tensors; ``None`` where that is refused."""
        key = (callee, *sorted(boxes.items()))
        if key not in self._boxed:
            self._boxed[key] = self._new(self._mod[callee], boxes, str(callee.name_hint))
        return self._boxed[key]

    def copy(self, box: Box, dtype: str) -> Any:
        """The kernel that copies its operand to a place."""
        key = (box, dtype)
        if key not in self._boxed:
            given = te.placeholder([tirx.IntImm("int64", extent) for extent in box.shape], dtype, "given")
            copied = te.compute(given.shape, lambda *indices: given[indices], "copied")
            plain = te.create_prim_func([given, copied], index_dtype_override="int64")
            self._boxed[key] = self._new(plain.without_attr("global_symbol"), {1: box}, "copy")
        return self._boxed[key]

    def _new(self, func: Any, boxes: _Boxes, name: str) -> Any:
        try:
            return self._builder.add_func(in_boxes(func, boxes), f"{name}_in_place")
        except Refused:
            return None


def _planned(function: Any, kernels: _Kernels) -> _Plan:
    calls, readers = calls_of(function)
    by_var = {call.var: call for call in calls}
    plan = _Plan()
    for call in calls:
        boxes = kernels.concat_boxes(call) if isinstance(call.var, relax.DataflowVar) else None
        if boxes is None:
            continue
        moves = {
            arg: moved
            for number, box in boxes.items()
            if call.args.count(arg := call.args[number]) == 1
            and (users := _users(arg, call, by_var, readers, kernels)) is not None
            and (moved := _moves(arg, users, box, plan, kernels)) is not None
        }
        written = sum(math.prod(box.shape) for number, box in boxes.items() if call.args[number] in moves)
        if written < _WORTH * math.prod(next(iter(boxes.values())).outer):
            continue
        plan.wholes[call.var] = whole = _Whole(call, boxes)
        plan.parts |= dict.fromkeys(moves, whole)
        for moved in moves.values():
            for var, own in moved.items():
                plan.moved[var] = plan.moved.get(var, {}) | own
    return plan


def _users(
    arg: Any, whole: KernelCall, by_var: Mapping[Any, KernelCall], readers: Mapping[Any, list[Any]], kernels: _Kernels
) -> list[KernelCall] | None:
    """Who makes a part and who else reads it; ``None`` where some of them can't be made to use its place."""
    found = [arg, *(reader for reader in dict.fromkeys(readers[arg]) if reader is not whole.var)]
    if not isinstance(arg, relax.DataflowVar) or not all(var in by_var for var in found):
        return None
    users = [by_var[var] for var in found]
    return None if any(kernels.concat_boxes(user) for user in users) else users


def _moves(
    arg: Any, users: Sequence[KernelCall], box: Box, plan: _Plan, kernels: _Kernels
) -> dict[Any, dict[int, Box]] | None:
    """By user the numbers of the parameters that are the part, which lies in the box; ``None`` if that is refused."""
    moved: dict[Any, dict[int, Box]] = {}
    for user in users:
        numbers = [number for number, one in enumerate((*user.args, user.var)) if one is arg or one.same_as(arg)]
        moved[user.var] = dict.fromkeys(numbers, box)
        if kernels.boxed(user.callee, plan.moved.get(user.var, {}) | moved[user.var]) is None:
            return None
    return moved


@relax.expr_functor.mutator
class _Writer(relax.PyExprMutator):  # type: ignore[misc]
    """Writes the plan down."""

    def __init__(self, mod: tvm.IRModule, plan: _Plan, kernels: _Kernels) -> None:
        super().__init__(mod)
        self._plan, self._kernels = plan, kernels

    def visit_dataflow_var_(self, var: Any) -> Any:
        whole = self._plan.parts.get(var) or self._plan.wholes.get(var)
        return whole.current if whole is not None else super().visit_dataflow_var_(var)

    def visit_var_binding_(self, binding: Any) -> None:
        var, whole = binding.var, self._plan.parts.get(binding.var)
        if var in self._plan.wholes:
            self._copy_the_rest(self._plan.wholes[var])
            return
        boxes = self._plan.moved.get(var)
        if boxes is None:
            super().visit_var_binding_(binding)
            return
        callee, args = binding.value.args
        callee, args = self._kernels.boxed(callee, boxes), [self.visit_expr(arg) for arg in args.fields]
        if whole is not None:
            self._write(whole, callee, args, str(var.name))
        else:
            call = relax.call_tir(callee, relax.Tuple(args), binding.value.ty)
            super().visit_var_binding_(relax.VarBinding(var, call))

    def _write(self, whole: _Whole, callee: Any, args: Sequence[Any], name: str) -> None:
        """A part into its place: the first one makes the tensor."""
        result = whole.call.ty
        if whole.current is None:
            call = relax.call_tir(callee, relax.Tuple(args), result)
        else:
            call = relax.op.call_tir_inplace(callee, relax.Tuple([*args, whole.current]), [len(args)], result)
        whole.current = self.builder_.emit(call, name)

    def _copy_the_rest(self, whole: _Whole) -> None:
        for number, box in whole.boxes.items():
            arg = whole.call.args[number]
            if self._plan.parts.get(arg) is not whole:
                callee = self._kernels.copy(box, str(whole.call.ty.dtype))
                self._write(whole, callee, [self.visit_expr(arg)], str(whole.call.var.name))
