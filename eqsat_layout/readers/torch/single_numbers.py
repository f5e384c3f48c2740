"""Tensors of no axes along an axis: torch takes them for vectors of one element (``torch.tensor(3.0).sum(0)``).

In: a node, and what its operands are in Relax. Out: the same operands with an axis, and results without.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from tvm import relax

_AXES: Final = ("dim", "dims")


def is_along_an_axis(node: Any) -> bool:
    """Whether the node's op goes along axes, and neither its operand nor a result has any."""
    names = [argument.name for argument in getattr(getattr(node.target, "_schema", None), "arguments", ())]
    given = node.args[0].meta.get("val") if node.args and hasattr(node.args[0], "meta") else None
    made = node.meta.get("val")
    shapes = [getattr(one, "shape", None) for one in (given, *(made if isinstance(made, list | tuple) else [made]))]
    axes = [dict(zip(names, node.args, strict=False)).get(name, 0) for name in names if name in _AXES]
    return bool(axes) and [] not in axes and all(shape is not None and not len(shape) for shape in shapes)


@contextlib.contextmanager
def with_one_axis(builder: relax.BlockBuilder, values: dict[Any, Any], node: Any) -> Iterator[None]:
    """Within it the node's operands of no axes have one in ``values``."""
    known = {one: values[one] for one in node.all_input_nodes if isinstance(values.get(one), relax.Expr)}
    own = {one: made for one, made in known.items() if getattr(made.ty, "ndim", -1) == 0}
    values.update({one: builder.emit(relax.op.reshape(made, [1])) for one, made in own.items()})
    try:
        yield
    finally:
        values.update(own)


def without_axes(builder: relax.BlockBuilder, made: Any) -> Any:
    """What was made so, of no axes again."""
    if isinstance(made, list | tuple | relax.Tuple):
        return relax.Tuple([without_axes(builder, one) for one in made])
    if isinstance(made.ty, relax.TupleType):
        count = len(made.ty.fields)
        return without_axes(builder, [builder.emit(relax.TupleGetItem(made, at)) for at in range(count)])
    return made if made.ty.ndim == 0 else builder.emit(relax.op.reshape(made, []))
