"""What bytes of a program stand for: numbers less a zero, times a scale.

In: an expression of a Relax function. Out: the bytes, their scale and their zero, as far as they are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm import ir, relax, tirx

from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import nodes_of

BYTES: Final = {"uint8": (0, 255), "int8": (-128, 127)}
"""Their types, and the least and the largest of each."""
SUM: Final = "int32"
"""Of products of bytes."""
FLOATS: Final = ("float32", "float16")
"""What they may stand for."""
_HOLD_BYTES: Final = frozenset({"float16", "float32", "float64", "int16", "int32", "int64"})
"""Types that hold every byte: one that was a bool on the way is another number."""
_LARGEST_ZERO: Final = 256
_ARGUMENTS_OF_SLICE: Final = 4
"""A tensor, axes, begins and ends; steps would be the fifth."""
_MOVES: Final = frozenset({"relax.permute_dims", "relax.reshape", "relax.expand_dims", "relax.squeeze"})
_CASTS: Final = (_MOVES | {"relax.astype"}) - {"relax.permute_dims"}


@dataclass(frozen=True)
class Quantised:
    """Numbers ``(values - zero) * scale``; ``None`` is 0 and 1.

    ``values``: an expression of bytes, or an array of whole numbers, whose zero is taken off already, and whose scale
    may be an array that is broadcast to it. ``moves``: calls that change the shape of an expression, the first one
    first.
    """

    values: Any
    scale: Any = None
    zero: Any = None
    moves: tuple[Any, ...] = ()

    @property
    def is_constant(self) -> bool:
        """The bytes are known."""
        return isinstance(self.values, np.ndarray)

    @property
    def signed(self) -> npt.NDArray[np.int8] | None:
        """The bytes, if they are known, and signed ones hold them."""
        low, high = BYTES["int8"]
        if not self.is_constant or self.values.size == 0 or self.values.min() < low or self.values.max() > high:
            return None
        signed: npt.NDArray[np.int8] = self.values.astype("int8")
        return signed

    @property
    def has_known_zero(self) -> bool:
        """Their zero is a number."""
        return self.zero is None or isinstance(self.zero, int)

    def with_zero(self, zero: Any) -> Quantised | None:
        """Less ``zero``: a number, a variable, or an array that is broadcast; ``None`` where there is no such thing."""
        if self.scale is not None or self.zero is not None or zero is None:
            return None
        if not self._takes(zero):
            return None
        return replace(self, values=self.values.astype(SUM) - zero) if self.is_constant else replace(self, zero=zero)

    def with_scale(self, scale: Any) -> Quantised | None:
        """The same times ``scale``."""
        if self.scale is not None or scale is None or not self._takes(scale):
            return None
        return replace(self, scale=scale)

    def moved(self, shape: Sequence[int], order: Sequence[int] | None) -> Quantised:
        """An array with its axes in another ``order``, or of another ``shape``."""

        def move(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return array.reshape(shape) if order is None else array.transpose(order)

        is_array = isinstance(self.scale, np.ndarray)
        scale = move(np.broadcast_to(self.scale, self.values.shape)) if is_array else self.scale
        return replace(self, values=move(self.values), scale=scale)

    def _takes(self, other: Any) -> bool:
        """It does not grow by what is broadcast with it, and stays known if it is."""
        if not self.is_constant or not isinstance(other, np.ndarray):
            return isinstance(other, ir.Var | int | float) and not (self.is_constant and isinstance(other, ir.Var))
        try:
            return bool(np.broadcast_shapes(other.shape, self.values.shape) == self.values.shape)
        except ValueError:
            return False


@dataclass(frozen=True)
class QuantisedReader:
    """What expressions of a function stand for. ``definitions``: by variable."""

    definitions: Mapping[Any, Any]

    @staticmethod
    def of(function: Any) -> QuantisedReader:
        """For the expressions of a Relax function."""
        return QuantisedReader({binding.var: binding.value for binding in nodes_of(function, relax.VarBinding)})

    def read(self, expr: Any) -> Quantised | None:
        """What bytes stand for; ``None`` for anything else."""
        if isinstance(expr, ir.GenericConst):
            return Quantised(expr.value.numpy()) if str(expr.ty.dtype) in BYTES else None
        call = self.definitions.get(expr)
        made = self._made(call) if isinstance(call, ir.Call) else None
        return Quantised(expr) if made is None and is_of_bytes(expr) else made

    def _made(self, call: Any) -> Quantised | None:
        name, dtype = str(getattr(call.op, "name", "")), str(getattr(call.ty, "dtype", ""))
        if name in _MOVES:
            return self._moved(call)
        if _is_whole_slice(call):
            return self.read(call.args[0])
        if name == "relax.dequantize":
            return self._dequantised(call)
        if name == "relax.astype" and dtype in (*FLOATS, SUM):
            inner = self.read(call.args[0])
            return inner if inner is not None and inner.scale is None else None
        if name == "relax.subtract" and dtype in (*FLOATS, SUM) and _is_like(call, call.args[0]):
            inner = self.read(call.args[0])
            return inner and inner.with_zero(self._whole(call.args[1]))
        if name == "relax.multiply" and dtype in FLOATS:
            for place, other in enumerate(reversed(call.args)):
                inner = self.read(call.args[place]) if _is_like(call, call.args[place]) else None
                made = inner and inner.with_scale(self._real(other))
                if made is not None:
                    return made
        return None

    def _dequantised(self, call: Any) -> Quantised | None:
        if str(call.args[0].ty.dtype) not in BYTES or str(call.ty.dtype) not in FLOATS:
            return None
        inner, scale, zero = self.read(call.args[0]), self._real(call.args[1]), self._whole(call.args[2])
        shape = [1] * int(call.ty.ndim)
        if shape:
            shape[int(call.attrs.axis) % len(shape)] = -1
        scale, zero = (one.reshape(shape) if isinstance(one, np.ndarray) else one for one in (scale, zero))
        less = inner and inner.with_zero(zero)
        return less and less.with_scale(scale)

    def _moved(self, call: Any) -> Quantised | None:
        inner = self.read(call.args[0])
        if inner is None:
            return None
        if not inner.is_constant:
            return replace(inner, moves=(*inner.moves, call))
        shape, order = _known_shape(call), None
        if str(call.op.name) == "relax.permute_dims":
            axes = call.attrs.axes
            order = list(range(inner.values.ndim))[::-1] if axes is None else [int(axis) for axis in axes]
        return None if shape is None else inner.moved(shape, order)

    def _whole(self, expr: Any) -> Any:
        """A number, an array, or a variable of one byte; ``None`` for anything else."""
        known = self._constant(expr)
        if known is not None:
            if not np.all(known == np.rint(known)) or np.abs(known).max(initial=0) > _LARGEST_ZERO:
                return None
            return int(known.reshape(-1)[0]) if known.size == 1 else known.astype("int32")
        source = self._behind(expr)
        return source if source is not None and is_of_bytes(source) and _is_single(source) else None

    def _real(self, expr: Any) -> Any:
        """The same of floats, which are finite if they are known."""
        known = self._constant(expr)
        if known is not None:
            if not np.all(np.isfinite(known)):
                return None
            return float(known.reshape(-1)[0]) if known.size == 1 else known
        is_float = isinstance(expr, ir.Var) and str(getattr(expr.ty, "dtype", "")) in FLOATS
        return expr if is_float and _is_single(expr) else None

    def _constant(self, expr: Any) -> npt.NDArray[Any] | None:
        """The elements of a constant, of another type or shape."""
        if isinstance(expr, ir.GenericConst):
            values: npt.NDArray[Any] = expr.value.numpy()
            return values
        call: Any = self.definitions.get(expr)
        is_repeat, is_slice = is_call(call, "relax.repeat"), _is_whole_slice(call)
        if not (is_repeat or is_slice or any(is_call(call, name) for name in _CASTS)):
            return None
        inner, shape = self._constant(call.args[0]), _known_shape(call)
        if inner is None or shape is None:
            return None
        if is_repeat:
            axis = call.attrs.axis
            inner = inner.repeat(int(call.attrs.repeats), None if axis is None else int(axis))
        return inner.reshape(shape).astype(str(call.ty.dtype))

    def _behind(self, expr: Any) -> Any:
        """The byte that a number of another type or shape was; itself where it was none."""
        while not is_of_bytes(expr) and isinstance(call := self.definitions.get(expr), ir.Call):
            if str(getattr(call.op, "name", "")) not in _CASTS or str(call.ty.dtype) not in _HOLD_BYTES:
                break
            expr = call.args[0]
        return expr if isinstance(expr, ir.Var) else None


def _known_shape(call: Any) -> list[int] | None:
    shape = getattr(call.ty, "shape", None)
    extents = [] if shape is None else list(shape.values)
    return [int(e) for e in extents] if shape is not None and all(isinstance(e, tirx.IntImm) for e in extents) else None


def is_of_bytes(expr: Any) -> bool:
    """A variable that holds a tensor of bytes."""
    return isinstance(expr, ir.Var) and isinstance(expr.ty, relax.TensorType) and str(expr.ty.dtype) in BYTES


def _is_like(call: Any, operand: Any) -> bool:
    """Of one shape, which is known."""
    shape = getattr(call.ty, "shape", None)
    return shape is not None and bool(tvm_ffi.structural_equal(shape, operand.ty.shape))


def _is_whole_slice(call: Any) -> bool:
    """It takes all there is, in steps of one."""
    has_no_steps = is_call(call, "relax.strided_slice") and len(call.args) == _ARGUMENTS_OF_SLICE
    return has_no_steps and _is_like(call, call.args[0])


def _is_single(expr: Any) -> bool:
    shape = _known_shape(expr)
    return shape is not None and all(extent == 1 for extent in shape)
