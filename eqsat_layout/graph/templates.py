"""Calls as templates: the tensors that a call reads, and the same call over others.

In: a Relax call (or tuple). Out: its tensor leaves in order, and the call rebuilt. A tuple variable is the tuple of its
fields, here and in the importer.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, relax


def leaf_exprs(template: Any) -> list[Any]:
    """Stand-ins for the tensor operands of ``template`` in order; each has at least ``.ty``."""
    if isinstance(template, relax.TupleGetItem):
        return [template.tuple_value]
    fields = template.fields if isinstance(template, relax.Tuple) else template.args
    return [leaf for arg in fields for leaf in _leaves(arg)]


def settings_of(call: Any) -> Hashable:
    """All that a call of an op is told besides tensors: its attributes, and its arguments that are none."""
    return tvm_ffi.StructuralKey(call.attrs), tuple(map(_setting, call.args))


def takes_tensors(call: Any) -> bool:
    """A ``call_tir`` passes tensors only: numbers would be a part of what its PrimFunc computes."""
    given = call.args[1]
    fields = given.fields if isinstance(given, relax.Tuple) else [given]
    return len(call.args) == 2 and all(map(is_value, fields))


def _setting(arg: Any) -> Hashable:
    if isinstance(arg, relax.Tuple):
        return tuple(map(_setting, arg.fields))
    if isinstance(arg, ir.GenericConst) or (isinstance(arg, ir.Var) and isinstance(arg.ty, relax.TensorType)):
        return "tensor"
    if isinstance(arg, ir.Var) and isinstance(arg.ty, relax.TupleType):
        return ("tensor",) * len(arg.ty.fields)
    key: Hashable = tvm_ffi.StructuralKey(arg)
    return key


class _Leaf:
    def __init__(self, ty: Any):
        self.ty = ty


def _leaves(arg: Any) -> Iterator[Any]:
    if isinstance(arg, relax.Tuple):
        for field in arg.fields:
            yield from _leaves(field)
    elif is_tuple_of_tensors(arg):
        yield from (_Leaf(ty) for ty in arg.ty.fields)
    elif is_value(arg):
        yield arg


def is_value(arg: Any) -> bool:
    """The argument is a value of the program: a constant, or a variable that holds a tensor, a tuple or an object."""
    kind = type(arg)  # isinstance goes through abc here, and this is asked for every argument of every call
    return kind is ir.GenericConst or (kind in _VARIABLES and type(arg.ty) in _VALUE_TYPES)


def is_tuple_of_tensors(arg: Any) -> bool:
    """The argument is a variable that holds a tuple of tensors and nothing else."""
    if type(arg) not in _VARIABLES or type(arg.ty) is not relax.TupleType:
        return False
    return all(type(field) is relax.TensorType for field in arg.ty.fields)


_VARIABLES = (ir.Var, relax.DataflowVar)
_VALUE_TYPES = (relax.TensorType, relax.TupleType, relax.AnyType)


class Template:
    """A call (or tuple, or tuple item) with its operands taken out, to be put over others again and again."""

    def __init__(self, expr: Any):
        self._expr = expr
        fields = expr.fields if isinstance(expr, relax.Tuple) else getattr(expr, "args", ())
        self._slots = [_slot(arg) for arg in fields]

    def over(self, leaves: Sequence[Any], *, typed: bool = False) -> Any:
        """The expression over other operands, one per leaf of :func:`leaf_exprs`; attributes and the rest stay.

        ``typed`` keeps the type of the template: the leaves have the types that its own operands had.
        """
        rest = iter(leaves)
        expr = self._expr
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(next(rest), expr.index)
        args = [_filled(slot, rest) for slot in self._slots]
        if isinstance(expr, relax.Tuple):
            return relax.Tuple(args)
        return relax.Call(expr.op, args, expr.attrs, expr.ty_args, ret_ty=expr.ty if typed else None)


_LEAF = object()
_Slot = Any
"""``_LEAF``, a list of slots for a tuple, or an argument that stays as it is."""


def _slot(arg: Any) -> _Slot:
    if isinstance(arg, relax.Tuple):
        return [_slot(field) for field in arg.fields]
    if is_tuple_of_tensors(arg):
        return [_LEAF for _ in arg.ty.fields]
    return _LEAF if is_value(arg) else arg


def _filled(slot: _Slot, leaves: Iterator[Any]) -> Any:
    if slot is _LEAF:
        return next(leaves)
    return relax.Tuple([_filled(s, leaves) for s in slot]) if type(slot) is list else slot
