"""Helpers for all of these ops: Relax ops that are emitted at once, and checks of operands and results.

In: a builder, a node's inputs and attributes. Out: what is asked, or :class:`EqsatError` for what is not done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from tvm import ir, relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.onnx.equal_extents import agreeing


class EmittedOps:
    """``op.NAME(...)`` emits the Relax op of that name and gives its variable."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.builder = builder

    def __getattr__(self, name: str) -> Callable[..., Any]:
        op = getattr(relax.op.nn if name in _OF_LAYERS else relax.op, name)
        return lambda *given, **named: self.builder.emit(op(*given, **named))

    def add(self, one: Any, other: Any) -> Any:
        """A sum that may broadcast, also along extents that nothing proves to be equal."""
        return self.builder.emit(relax.op.add(*agreeing(self.builder, (one, other))))

    def number(self, value: float, like: Any) -> Any:
        """A constant of the dtype of ``like``."""
        return relax.const(value, str(like.ty.dtype))

    def floats(self, value: Any) -> Any:
        """``value`` in float32."""
        return value if str(value.ty.dtype) == "float32" else self.astype(value, "float32")

    def like(self, value: Any, other: Any) -> Any:
        """``value`` in the dtype of ``other``."""
        dtype = str(other.ty.dtype)
        return value if str(value.ty.dtype) == dtype else self.astype(value, dtype)

    def scaled(self, value: Any, by: float) -> Any:
        """``value`` times a number."""
        return value if by == 1 else self.multiply(value, self.number(by, value))

    def computed(self, name: str, compute: Callable[..., Any], *operands: Any) -> Any:
        """The result of a TE computation, as a PrimFunc called ``name``."""
        return self.builder.emit_te(compute, *operands, primfunc_name_hint=name)


_OF_LAYERS: Final = ("softmax", "relu", "gelu", "leakyrelu", "layer_norm", "avg_pool2d")


def operand_shape(value: Any) -> list[Any]:
    """Its extents, symbolic or not; :class:`EqsatError` where it has none."""
    if not isinstance(getattr(value.ty, "shape", None), relax.ShapeExpr):
        raise EqsatError(f"an operand of unknown shape, {value.ty}, is not done")
    return list(value.ty.shape.values)


def static_extent(value: Any, axis: int) -> int:
    """The extent of one axis, as a number; :class:`EqsatError` where it is symbolic."""
    extent = operand_shape(value)[axis]
    if not isinstance(extent, tirx.IntImm):
        raise EqsatError(f"an operand of which axis {axis} is of unknown size is not done")
    return int(extent)


def refuse_operand(given: Any, what: str) -> None:
    """:class:`EqsatError` where an operand is given that is not done."""
    if given is not None:
        raise EqsatError(f"with {what} is not done")


def constant_array(value: Any, what: str) -> np.ndarray[Any, Any]:
    """The elements of a constant; :class:`EqsatError` where it is none."""
    if not isinstance(value, ir.GenericConst):
        raise EqsatError(f"with {what} that are no constants is not done")
    return np.asarray(value.value.numpy())


def results_of(made: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """As many results as are asked for; those that are left out between them are None."""
    wanted = attributes["tvm_custom"]["num_outputs"]
    if wanted == 1:
        return made[0]
    if len(made) < wanted:
        raise EqsatError(f"with {wanted} results is not done")
    return relax.Tuple([made[0] if one is None else one for one in made[:wanted]])


def refuse_other_results(attributes: dict[str, Any], *places: int) -> None:
    """:class:`EqsatError` where other results than those at ``places`` are asked for by name."""
    names = attributes["tvm_custom"].get("outputs", ())
    asked = [at for at, name in enumerate(names) if name and at not in places]
    if asked:
        raise EqsatError(f"with result {asked[0]} is not done")


def last_axes_exchanged(op: EmittedOps, x: Any) -> Any:
    """``x`` with its last two axes exchanged."""
    rank = len(operand_shape(x))
    return op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])


Maker = Callable[[EmittedOps, list[Any], dict[str, Any]], Any]
"""Gives the results of a node, from its inputs, behind them None for those that are left out, and its attributes."""
