"""How many axes tensors have, where only a run tells.

In: a node and what it reads; a value that branches made. Out: the value with a symbol for each extent, or
:class:`OnnxNodeError` where a kernel would read what has no rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import tvm

from eqsat_layout.readers.onnx.graphs import OnnxNodeError, of_node


def with_known_rank(builder: tvm.relax.BlockBuilder, value: Any) -> Any:
    """With a symbol for each extent that is another one in each branch of the ``If`` that made it: what is made of it
    has a shape then."""
    ty = value.ty if isinstance(value, tvm.relax.Var) else None
    if not isinstance(ty, tvm.relax.TensorType) or isinstance(ty.shape, tvm.relax.ShapeExpr) or ty.ndim < 0:
        return value
    made = builder.lookup_binding(value)
    branches = [made.true_branch, made.false_branch] if isinstance(made, tvm.relax.If) else []
    shapes: list[Any] = [getattr(branch.ty, "shape", None) for branch in branches]
    extents: list[Any] = [tvm.tirx.Var(f"{_AFTER_BRANCHES}{axis}", "int64") for axis in range(ty.ndim)]
    if shapes and all(isinstance(shape, tvm.relax.ShapeExpr) for shape in shapes):
        for axis, ends in enumerate(zip(*(shape.values for shape in shapes), strict=True)):
            numbers = {int(end) if isinstance(end, tvm.tirx.IntImm) else None for end in ends}
            if len(numbers) == 1 and None not in numbers:
                extents[axis] = ends[0]
    return builder.match_cast(value, tvm.relax.TensorType(extents, str(ty.dtype)))


def check_ranks(node: Any, read: Mapping[str, Any]) -> None:
    """:class:`OnnxNodeError` for a tensor that has as many axes as an input or the branch taken has, where a kernel
    reads it."""
    for name, value in read.items():
        ty = getattr(value, "ty", None)
        if node.op_type not in _OF_ANY_RANK and isinstance(ty, tvm.relax.TensorType) and ty.ndim < 0:
            what = of_node(node)
            why = "an input without a shape, or branches of different ranks, gives it"
            raise OnnxNodeError(f"{what} reads {name!r}, whose rank is not known: {why}", str(node.op_type))


_OF_ANY_RANK: Final = ("Identity", "Reshape", "Shape")
"""What is done without a kernel."""

_AFTER_BRANCHES: Final = "branched"
"""What sizes are called that depend on which branch was taken."""
