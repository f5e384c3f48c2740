"""Calls as templates: the tensors that a call reads, and the same call over others.

In: a Relax call (or tuple). Out: its tensor leaves in order, and the call rebuilt. A tuple variable is the tuple of its
fields, here and in the importer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tvm import ir, relax


def leaf_exprs(template: Any) -> list[Any]:
    """Stand-ins for the tensor operands of ``template`` in order; each has at least ``.ty``."""
    if isinstance(template, relax.TupleGetItem):
        return [template.tuple_value]
    fields = template.fields if isinstance(template, relax.Tuple) else template.args
    return [leaf for arg in fields for leaf in _leaves(arg)]


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
    if isinstance(arg, ir.GenericConst):
        return True
    return isinstance(arg, ir.Var) and isinstance(arg.ty, relax.TensorType | relax.TupleType | relax.AnyType)


def is_tuple_of_tensors(arg: Any) -> bool:
    """The argument is a variable that holds a tuple of tensors and nothing else."""
    if not isinstance(arg, ir.Var) or not isinstance(arg.ty, relax.TupleType):
        return False
    return all(isinstance(field, relax.TensorType) for field in arg.ty.fields)


def with_leaves(template: Any, leaves: Sequence[Any], *, typed: bool = False) -> Any:
    """``template`` over other operands, one per leaf of :func:`leaf_exprs`; attributes and the rest stay.

    ``typed`` keeps the type of the template: the leaves have the types that its own operands had.
    """
    rest = iter(leaves)
    if isinstance(template, relax.TupleGetItem):
        return relax.TupleGetItem(next(rest), template.index)
    if isinstance(template, relax.Tuple):
        return relax.Tuple([_rebuilt(field, rest) for field in template.fields])
    args = [_rebuilt(arg, rest) for arg in template.args]
    return relax.Call(template.op, args, template.attrs, template.ty_args, ret_ty=template.ty if typed else None)


def _rebuilt(arg: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(arg, relax.Tuple):
        return relax.Tuple([_rebuilt(field, leaves) for field in arg.fields])
    if is_tuple_of_tensors(arg):
        return relax.Tuple([next(leaves) for _ in arg.ty.fields])
    return next(leaves) if is_value(arg) else arg
