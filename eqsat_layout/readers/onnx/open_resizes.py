"""Resizes along an axis whose extents are known at run time only: where the elements of the result lie, and how much
each element of the data counts for them, worked out by the program itself.

In: extents before and after, a scale. Out: indices, or a matrix, in Relax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tvm import relax
from tvm.relax import op as R

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.resampling import REACH, Filter

_KIND: Final = "float32"


@dataclass(frozen=True)
class OpenAxis:
    """``scale``: None where the sizes say it."""

    builder: relax.BlockBuilder
    extent: Any
    size: Any
    scale: float | None

    def indices(self, where: str, rounding: str) -> Any:
        """The nearest element for each of the result."""
        at, half = self._places(where), _number(0.5)
        if rounding in ("floor", "ceil"):
            near = R.floor(at) if rounding == "floor" else R.ceil(at)
        else:
            near = R.ceil(R.subtract(at, half)) if rounding == "round_prefer_floor" else R.floor(R.add(at, half))
        last = R.subtract(self._as_float(self.extent), _number(1.0))
        return self._emit(R.astype(R.minimum(R.maximum(near, _number(0.0)), last), "int64"))

    def weights(self, where: str, means: Filter, *, smooths: bool) -> Any:
        """A row for each element of the result; see :meth:`Filter.weights`."""
        places = self._emit(R.expand_dims(self._places(where), 1))
        shrink = self._emit(R.minimum(self._scale(), _number(1.0))) if smooths else _number(1.0)

        def counts(first: Any, elements: Any) -> Any:
            at = self._emit(R.add(self._counted(elements), first))
            return self._emit(_at(means, R.abs(R.multiply(R.subtract(at, places), shrink))))

        rows = counts(_number(0.0), self.extent)
        if not means.excludes:  # what lies beyond counts for the first and the last element
            beyond = self.extent * REACH[means.kind] + REACH[means.kind]  # as far as the widest filter reaches
            before = R.sum(counts(self._as_float(-beyond), beyond), [1], keepdims=True)
            after = R.sum(counts(self._as_float(self.extent), beyond), [1], keepdims=True)
            at = self._emit(R.expand_dims(self._counted(self.extent), 0))
            last = R.subtract(self._as_float(self.extent), _number(1.0))
            rows = self._emit(R.add(rows, R.where(R.equal(at, _number(0.0)), before, _number(0.0))))
            rows = self._emit(R.add(rows, R.where(R.equal(at, last), after, _number(0.0))))
        return self._emit(R.divide(rows, R.sum(rows, [1], keepdims=True)))

    def _places(self, mode: str) -> Any:
        at, half = self._counted(self.size), _number(0.5)
        scaled = self._emit(R.subtract(R.divide(R.add(at, half), self._scale()), half))
        if mode == "half_pixel" or (mode == "half_pixel_symmetric" and self.scale is None):
            return scaled
        size = self._as_float(self.size)
        one = R.equal(size, _number(1.0))
        if mode == "pytorch_half_pixel":
            return self._emit(R.where(one, _number(0.0), scaled))
        if mode == "asymmetric":
            return self._emit(R.divide(at, self._scale()))
        if mode == "align_corners" and self.scale is None:
            steps = R.subtract(R.where(one, _number(2.0), size), _number(1.0))
            return self._emit(R.multiply(at, R.divide(R.subtract(self._as_float(self.extent), _number(1.0)), steps)))
        raise EqsatError(f"Resize with {mode} by sizes that are known at run time only is not done")

    def _scale(self) -> Any:
        if self.scale is not None:
            return _number(self.scale)
        return self._emit(R.divide(self._as_float(self.size), self._as_float(self.extent)))

    def _counted(self, number: Any) -> Any:
        return self._emit(R.astype(self._emit(R.arange(0, number, 1, "int64")), _KIND))

    def _as_float(self, size: Any) -> Any:
        vector = self._emit(R.shape_to_tensor(self._emit(relax.ShapeExpr([size]))))
        return self._emit(R.astype(R.reshape(vector, ()), _KIND))

    def _emit(self, value: Any) -> Any:
        return self.builder.emit(self.builder.normalize(value))


def _number(value: float) -> Any:
    return relax.const(value, _KIND)


def _at(means: Filter, x: Any) -> Any:
    """As :class:`Filter` has it, of distances that are not below 0."""
    if means.kind == "linear":
        return R.maximum(R.subtract(_number(1.0), x), _number(0.0))
    near = _polynomial(x, [means.a + 2, -(means.a + 3), 0.0, 1.0])
    far = _polynomial(x, [means.a, -5 * means.a, 8 * means.a, -4 * means.a])
    is_far = R.less(x, _number(2.0))
    return R.where(R.less(x, _number(1.0)), near, R.where(is_far, far, _number(0.0)))


def _polynomial(x: Any, factors: list[float]) -> Any:
    total: Any = _number(factors[0])
    for factor in factors[1:]:
        total = R.add(R.multiply(total, x), _number(factor))
    return total
