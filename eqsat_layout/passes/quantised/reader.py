"""Reads quantised values: which bytes an expression is computed from, with which zero point and scale.

In: an expression of a Relax function. Out: :class:`Quantised`: the bytes, scale and zero point, constant or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm import ir, relax, tirx

from eqsat_layout.passes.read_counts import results_of_blocks
from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import nodes_of

BYTE_RANGES: Final = {"uint8": (0, 255), "int8": (-128, 127)}
"""The types of bytes, and the least and the largest value of each."""
SUM_DTYPE: Final = "int32"
"""The type in which products of bytes are added up."""
FLOAT_DTYPES: Final = ("float32", "float16")
"""The types of floats that bytes may stand for."""
_HOLD_BYTES: Final = frozenset({"float16", "float32", "float64", "int16", "int32", "int64"})
"""Types that hold every byte: one that was a bool on the way is another number."""
_LARGEST_ZERO: Final = 256
"""A larger zero point is no quantisation of bytes."""
_ARGUMENTS_OF_SLICE: Final = 4
"""A tensor, axes, begins and ends; steps would be the fifth."""
_MOVES: Final = frozenset({"relax.permute_dims", "relax.reshape", "relax.expand_dims", "relax.squeeze"})
_CASTS: Final = (_MOVES | {"relax.astype"}) - {"relax.permute_dims"}


@dataclass(frozen=True)
class Quantised:
    """Numbers ``(values - zero) * scale``; a zero of ``None`` is 0, a scale of ``None`` is 1.

    ``values``: an expression of bytes; or an array of integers, from which the zero point is already subtracted, and
    whose scale may be an array that broadcasts to it. ``moves``: the calls that reshape or transpose an expression,
    in the order of execution.
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
        """The constant values as int8; ``None`` where they are not constant or too large."""
        low, high = BYTE_RANGES["int8"]
        if not self.is_constant or self.values.size == 0 or self.values.min() < low or self.values.max() > high:
            return None
        signed: npt.NDArray[np.int8] = self.values.astype("int8")
        return signed

    @property
    def has_known_zero(self) -> bool:
        """The zero point is a constant."""
        return self.zero is None or isinstance(self.zero, int)

    def with_zero(self, zero: Any) -> Quantised | None:
        """Less ``zero``: a number, a variable, or an array that broadcasts; ``None`` where that is not of this form."""
        if self.scale is not None or self.zero is not None or zero is None:
            return None
        if not self._takes(zero):
            return None
        return (
            replace(self, values=self.values.astype(SUM_DTYPE) - zero) if self.is_constant else replace(self, zero=zero)
        )

    def with_scale(self, scale: Any) -> Quantised | None:
        """The same times ``scale``; ``None`` where that is not of this form."""
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
        """``other`` broadcasts to the values, and leaves constants constant."""
        if not self.is_constant or not isinstance(other, np.ndarray):
            return isinstance(other, ir.Var | int | float) and not (self.is_constant and isinstance(other, ir.Var))
        try:
            return bool(np.broadcast_shapes(other.shape, self.values.shape) == self.values.shape)
        except ValueError:
            return False


@dataclass(frozen=True)
class QuantisedReader:
    """Reads the expressions of a function. ``definitions``: what its variables are bound to."""

    definitions: Mapping[Any, Any]

    @staticmethod
    def of(function: Any) -> QuantisedReader:
        """For the expressions of a Relax function."""
        unknown = results_of_blocks(function)
        bindings = [binding for binding in nodes_of(function, relax.VarBinding) if binding.var not in unknown]
        return QuantisedReader({binding.var: binding.value for binding in bindings})

    def read(self, expr: Any) -> Quantised | None:
        """The quantised value that ``expr`` is; ``None`` where it is none."""
        if isinstance(expr, ir.GenericConst):
            return Quantised(expr.value.numpy()) if str(expr.ty.dtype) in BYTE_RANGES else None
        call = self.definitions.get(expr)
        made = self._computed(call) if isinstance(call, ir.Call) else None
        return Quantised(expr) if made is None and is_of_bytes(expr) else made

    def _computed(self, call: Any) -> Quantised | None:
        name, dtype = str(getattr(call.op, "name", "")), str(getattr(call.ty, "dtype", ""))
        if name in _MOVES:
            return self._reshaped(call)
        if _is_whole_slice(call):
            return self.read(call.args[0])
        if name == "relax.dequantize":
            return self._dequantised(call)
        if name == "relax.astype" and dtype in (*FLOAT_DTYPES, SUM_DTYPE):
            inner = self.read(call.args[0])
            return inner if inner is not None and inner.scale is None else None
        if name == "relax.subtract" and dtype in (*FLOAT_DTYPES, SUM_DTYPE) and _is_like(call, call.args[0]):
            inner = self.read(call.args[0])
            return inner and inner.with_zero(self._zero_point(call.args[1]))
        if name == "relax.multiply" and dtype in FLOAT_DTYPES:
            for place, other in enumerate(reversed(call.args)):
                inner = self.read(call.args[place]) if _is_like(call, call.args[place]) else None
                made = inner and inner.with_scale(self._scale(other))
                if made is not None:
                    return made
        return None

    def _dequantised(self, call: Any) -> Quantised | None:
        if str(call.args[0].ty.dtype) not in BYTE_RANGES or str(call.ty.dtype) not in FLOAT_DTYPES:
            return None
        inner, scale, zero = self.read(call.args[0]), self._scale(call.args[1]), self._zero_point(call.args[2])
        shape = [1] * int(call.ty.ndim)
        if shape:
            shape[int(call.attrs.axis) % len(shape)] = -1
        scale, zero = (one.reshape(shape) if isinstance(one, np.ndarray) else one for one in (scale, zero))
        less = inner and inner.with_zero(zero)
        return less and less.with_scale(scale)

    def _reshaped(self, call: Any) -> Quantised | None:
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

    def _zero_point(self, expr: Any) -> Any:
        """A zero point: a number, an array, or a variable of one byte; ``None`` for anything else."""
        known = self._constant(expr)
        if known is not None:
            if not np.all(known == np.rint(known)) or np.abs(known).max(initial=0) > _LARGEST_ZERO:
                return None
            return int(known.reshape(-1)[0]) if known.size == 1 else known.astype("int32")
        source = self._uncast(expr)
        return source if source is not None and is_of_bytes(source) and _is_single(source) else None

    def _scale(self, expr: Any) -> Any:
        """A scale: a finite number or array, or a variable of one float; ``None`` for anything else."""
        known = self._constant(expr)
        if known is not None:
            if not np.all(np.isfinite(known)):
                return None
            return float(known.reshape(-1)[0]) if known.size == 1 else known
        is_float = isinstance(expr, ir.Var) and str(getattr(expr.ty, "dtype", "")) in FLOAT_DTYPES
        return expr if is_float and _is_single(expr) else None

    def _constant(self, expr: Any) -> npt.NDArray[Any] | None:
        """The elements of a constant that may have been cast, reshaped or repeated; ``None`` for anything else."""
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

    def _uncast(self, expr: Any) -> Any:
        """The variable of bytes that was cast or reshaped to ``expr``; ``None`` where there is no variable."""
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
    return isinstance(expr, ir.Var) and isinstance(expr.ty, relax.TensorType) and str(expr.ty.dtype) in BYTE_RANGES


def _is_like(call: Any, operand: Any) -> bool:
    """The call and the operand have one shape."""
    shape = getattr(call.ty, "shape", None)
    return shape is not None and bool(tvm_ffi.structural_equal(shape, operand.ty.shape))


def _is_whole_slice(call: Any) -> bool:
    """A ``strided_slice`` of all elements, in steps of one."""
    has_no_steps = is_call(call, "relax.strided_slice") and len(call.args) == _ARGUMENTS_OF_SLICE
    return has_no_steps and _is_like(call, call.args[0])


def _is_single(expr: Any) -> bool:
    shape = _known_shape(expr)
    return shape is not None and all(extent == 1 for extent in shape)
