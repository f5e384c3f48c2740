"""Functions of single elements that TVM's frontend lacks, or computes where they lose all digits.

In: an importer's builder, operands. Out: results in Relax, of the operands' type; those of narrow floats are computed
in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from tvm import relax, te, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.determinants import determinant
from eqsat_layout.readers.layers.dtypes import as_dtype
from eqsat_layout.readers.layers.exponential_units import exponential_unit
from eqsat_layout.readers.layers.leaky_units import leaky_unit
from eqsat_layout.readers.torch.types import dtype_name

_SINGLE: Final = "float32"
_SMALL: Final = 0.1
"""Below it, in size, ``exp(x) - 1`` and ``log(1 + x)`` lose digits."""


def _wide(make: Callable[[relax.BlockBuilder, Any], Any]) -> Callable[[relax.BlockBuilder, Any], Any]:
    """``make`` of float32 for narrower floats, and for whole numbers, of which torch gives float32."""

    def made(b: relax.BlockBuilder, x: Any) -> Any:
        dtype = str(x.ty.dtype)
        if dtype in (_SINGLE, "float64"):
            return make(b, x)
        result = make(b, b.emit(relax.op.astype(x, _SINGLE)))
        is_float = dtype.startswith(("float", "bfloat"))
        return b.emit(relax.op.astype(result, dtype)) if is_float else result

    return made


@_wide
def expm1(b: relax.BlockBuilder, x: Any) -> Any:
    """``exp(x) - 1``: near 0 ``x + x^2 / 2 + x^3 / 6 + ...``."""
    op, count = relax.op, 10 if str(x.ty.dtype) == "float64" else 5
    terms = [1 / math.factorial(n) for n in range(1, count + 1)]
    near = b.emit(op.multiply(x, _polynomial(b, x, terms)))
    return _near_zero(b, x, near, b.emit(op.subtract(b.emit(op.exp(x)), _like(x, 1.0))))


@_wide
def log1p(b: relax.BlockBuilder, x: Any) -> Any:
    """``log(1 + x)``: near 0 ``2 (y + y^3 / 3 + y^5 / 5 + ...)`` of ``y = x / (2 + x)``."""
    op, count = relax.op, 7 if str(x.ty.dtype) == "float64" else 3
    y = b.emit(op.divide(x, b.emit(op.add(x, _like(x, 2.0)))))
    terms = [2 / (2 * n + 1) for n in range(count)]
    near = b.emit(op.multiply(y, _polynomial(b, b.emit(op.multiply(y, y)), terms)))
    return _near_zero(b, x, near, b.emit(op.log(b.emit(op.add(x, _like(x, 1.0))))))


def _polynomial(b: relax.BlockBuilder, x: Any, terms: Sequence[float]) -> Any:
    """Lowest power first."""
    total: Any = _like(x, terms[-1])
    for term in reversed(terms[:-1]):
        total = b.emit(relax.op.add(b.emit(relax.op.multiply(total, x)), _like(x, term)))
    return total


def _near_zero(b: relax.BlockBuilder, x: Any, near: Any, plain: Any) -> Any:
    small = b.emit(relax.op.less(b.emit(relax.op.abs(x)), _like(x, _SMALL)))
    return b.emit(relax.op.where(small, near, plain))


def exp2(b: relax.BlockBuilder, x: Any) -> Any:
    """Two to the power of ``x``."""
    return b.emit(relax.op.power(_like(x, 2.0), x))


def sigmoid(b: relax.BlockBuilder, x: Any) -> Any:
    """Of whole numbers too, as float32."""
    return b.emit(relax.op.sigmoid(x if "float" in str(x.ty.dtype) else as_dtype(b, x, "float32")))


def converted(b: relax.BlockBuilder, x: Any, dtype: Any) -> Any:
    """To torch's ``dtype``, as its own definitions of ops write it."""
    return b.emit(relax.op.astype(x, dtype_name(dtype)))


def viewed_as(b: relax.BlockBuilder, x: Any, dtype: Any) -> Any:
    """``x.view(dtype)``, of as many bits."""
    name, own = dtype_name(dtype), str(x.ty.dtype)
    if name == own:
        return x
    if "bool" in (name, own) or tirx.const(0, name).ty.dtype.bits != tirx.const(0, own).ty.dtype.bits:
        raise EqsatError(f"a view of {own} as {name} is not done")

    def compute(data: Any) -> Any:
        return te.compute(data.shape, lambda *at: tirx.reinterpret(name, data(*at)), "same_bits")

    return b.emit_te(compute, x, primfunc_name_hint="same_bits")


def mean_slope(b: relax.BlockBuilder, x: Any, _noise: Any, lower: float = 1 / 8, upper: float = 1 / 3, *_: Any) -> Any:
    """``rrelu`` where nothing is trained."""
    return relax.Tuple([leaky_unit(b, x, (lower + upper) / 2)])


def _determinant(b: relax.BlockBuilder, matrices: Any) -> Any:
    """The first result; the others are for gradients."""
    return relax.Tuple([determinant(b, matrices)])


def _like(x: Any, number: float) -> Any:
    return relax.const(number, str(x.ty.dtype))


MAKERS: Final[dict[str, Callable[..., Any]]] = {
    "expm1.default": expm1,
    "log1p.default": log1p,
    "exp2.default": exp2,
    "sigmoid.default": sigmoid,
    "elu.default": exponential_unit,
    "leaky_relu.default": leaky_unit,
    "convert_element_type.default": converted,
    "view.dtype": viewed_as,
    "rrelu_with_noise_functional.default": mean_slope,
    "_linalg_det.default": _determinant,
}
"""By the names of torch's ops."""
