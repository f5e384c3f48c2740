"""What bytes of a program stand for: numbers less a zero, times a scale.

In: an expression of a Relax function. Out: the bytes, their scale and their zero, as far as they are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm import ir, relax, tirx

from eqsat_layout.tir.structural import nodes_of

BYTES: Final = {"uint8": (0, 255), "int8": (-128, 127)}
"""Their types, and the least and the largest of each."""
SUM: Final = "int32"
"""Of products of bytes."""
FLOATS: Final = ("float32", "float16")
"""What they may stand for."""
_LARGEST_ZERO: Final = 256
_MOVES: Final = frozenset({"relax.permute_dims", "relax.reshape", "relax.expand_dims", "relax.squeeze"})
_CASTS: Final = (_MOVES | {"relax.astype"}) - {"relax.permute_dims"}


@dataclass(frozen=True)
class Quantised:
    """Numbers ``(values - zero) * scale``; ``None`` is 0 and 1.

    ``values``: an expression of bytes, or an array of whole numbers. ``moves``: calls that change its shape, the first
    one first. ``axis``: of ``scale`` and ``zero``, if these are vectors.
    """

    values: Any
    scale: Any = None
    zero: Any = None
    axis: int | None = None
    moves: tuple[Any, ...] = ()

    @property
    def is_constant(self) -> bool:
        """The bytes are known."""
        return isinstance(self.values, np.ndarray)

    @property
    def has_known_zero(self) -> bool:
        """Their zero is a number."""
        return self.zero is None or isinstance(self.zero, int)


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
        if is_of_bytes(expr) and expr not in self.definitions:
            return Quantised(expr)
        call = self.definitions.get(expr)
        if not isinstance(call, ir.Call):
            return Quantised(expr) if is_of_bytes(expr) else None
        name = str(getattr(call.op, "name", ""))
        if name in _MOVES:
            return self._moved(call) or (Quantised(expr) if is_of_bytes(expr) else None)
        if name == "relax.dequantize":
            return self._dequantised(call)
        if name == "relax.astype" and str(call.ty.dtype) in (*FLOATS, SUM):
            inner = self.read(call.args[0])
            return inner if inner is not None and inner.scale is None else None
        if name == "relax.subtract":
            inner, zero = self.read(call.args[0]), self._whole(call.args[1])
            is_plain = inner is not None and inner.scale is None and inner.zero is None and zero is not None
            return self._with(inner, call, 0, zero=zero) if inner is not None and is_plain else None
        if name == "relax.multiply":
            for place, other in enumerate(reversed(call.args)):
                inner, scale = self.read(call.args[place]), self._real(other)
                if inner is not None and inner.scale is None and scale is not None:
                    return self._with(inner, call, place, scale=scale)
        return Quantised(expr) if is_of_bytes(expr) else None

    def _dequantised(self, call: Any) -> Quantised | None:
        if str(call.args[0].ty.dtype) not in BYTES or str(call.ty.dtype) not in FLOATS:
            return None
        inner, scale, zero = self.read(call.args[0]), self._real(call.args[1]), self._whole(call.args[2])
        if inner is None or inner.scale is not None or inner.zero is not None or scale is None or zero is None:
            return None
        is_vector = any(isinstance(one, np.ndarray) for one in (scale, zero))
        axis = int(call.attrs.axis) % int(call.ty.ndim) if is_vector else None
        return replace(inner, scale=scale, zero=zero, axis=axis)

    def _with(
        self, inner: Quantised, call: Any, place: int, *, scale: Any = None, zero: Any = None
    ) -> Quantised | None:
        """A scale or a zero more, by a call that does not broadcast the values, its operand ``place``."""
        if not tvm_ffi.structural_equal(call.ty.shape, call.args[place].ty.shape):
            return None
        value, axis = (zero if scale is None else scale), inner.axis
        if isinstance(value, np.ndarray):
            long = [number for number, extent in enumerate(value.shape) if extent != 1]
            axis = long[0] + int(call.ty.ndim) - value.ndim
            if len(long) != 1 or inner.axis not in (None, axis):
                return None
            value = value.reshape(-1)
        if scale is None:
            return replace(inner, zero=value, axis=axis)
        return replace(inner, scale=value, axis=axis)

    def _moved(self, call: Any) -> Quantised | None:
        inner = self.read(call.args[0])
        if inner is None:
            return None
        name = str(call.op.name)
        if not isinstance(inner.values, np.ndarray):
            return replace(inner, moves=(*inner.moves, call)) if inner.axis is None else None
        if name == "relax.permute_dims":
            axes = call.attrs.axes
            order = list(range(inner.values.ndim))[::-1] if axes is None else [int(axis) for axis in axes]
            axis = None if inner.axis is None else order.index(inner.axis)
            return replace(inner, values=inner.values.transpose(order), axis=axis)
        shape = [int(extent) for extent in call.ty.shape.values if isinstance(extent, tirx.IntImm)]
        if inner.axis is not None or len(shape) != int(call.ty.ndim):
            return None
        return replace(inner, values=inner.values.reshape(shape))

    def _whole(self, expr: Any) -> Any:
        """A number, an array of one axis that counts, or a variable of one byte; ``None`` for anything else."""
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
        call = self.definitions.get(expr)
        if not isinstance(call, ir.Call) or str(getattr(call.op, "name", "")) not in _CASTS:
            return None
        inner, shape = self._constant(call.args[0]), _known_shape(call)
        return None if inner is None or shape is None else inner.reshape(shape).astype(str(call.ty.dtype))

    def _behind(self, expr: Any) -> Any:
        """The byte that a number of another type or shape was; itself where it was none."""
        while not is_of_bytes(expr) and isinstance(call := self.definitions.get(expr), ir.Call):
            if str(getattr(call.op, "name", "")) not in _CASTS:
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


def _is_single(expr: Any) -> bool:
    shape = _known_shape(expr)
    return shape is not None and all(extent == 1 for extent in shape)
