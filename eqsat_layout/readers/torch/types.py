"""What torch says of the types of a program's tensors.

In: a node, or what was made of it. Out: the type that its operands are brought to; :class:`EqsatError` where what was
made is of another type or shape than torch says.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, relax, tirx

from eqsat_layout.errors import EqsatError


def dtype_name(dtype: Any) -> str:
    """TVM's name of a dtype of torch's, or of the text of one."""
    return str(dtype).removeprefix("torch.")


def promoted_type(node: Any) -> str | None:
    """The dtype in which a node with two operands computes, by torch's promotion; ``None`` for one over sizes."""
    torch = importlib.import_module("torch")
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    given = [getattr(one, "meta", {}).get("val", one) for one in tuple.__iter__(node.args)][:2]
    if len(given) < 2 or not any(isinstance(one, torch.Tensor) for one in given):
        return None
    plain = [one if isinstance(one, torch.Tensor | int | float | bool) else _example(torch, one) for one in given]
    found = torch.result_type(*plain)
    if value.dtype.is_floating_point and not found.is_floating_point:
        found = value.dtype
    return dtype_name(found)


def _example(torch: Any, size: Any) -> int | float:
    """A number of the kind of a size, or of what is worked out of sizes."""
    return 1.0 if isinstance(size, torch.SymFloat) else 1


def check_made_type(made: Any, value: Any) -> None:
    """``made`` in Relax of a node that gives ``value`` in torch."""
    if isinstance(value, list | tuple):
        for one, part in zip(_parts(made), value, strict=False):  # of results that nobody uses TVM makes none
            check_made_type(one, part)
        return
    shape, ty = getattr(value, "shape", None), made if isinstance(made, ir.Type) else getattr(made, "ty", None)
    if shape is None or not isinstance(ty, relax.TensorType):
        return
    own = list(ty.shape.values) if isinstance(ty.shape, relax.ShapeExpr) else list(shape)
    both = [(a, b) for a, b in zip(own, shape, strict=False) if isinstance(a, tirx.IntImm) and isinstance(b, int)]
    dtype = dtype_name(value.dtype)
    if len(own) != len(shape) or any(int(a) != b for a, b in both) or str(ty.dtype) != dtype:
        raise EqsatError(f"torch makes {dtype} {tuple(shape)} of it, TVM's frontend {ty}")


def _parts(made: Any) -> Sequence[Any]:
    """The parts of a tuple, or their types."""
    if isinstance(made, list | tuple):
        return made
    return list(made.fields if isinstance(made, relax.Tuple) else getattr(made.ty, "fields", ()))


Maker = Callable[..., Any]
