"""A hyperbolic tangent of a logarithm without either: ``tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2)``.

In: an expression of float32. Out: the same with every tanh of a softplus, as in mish, as one division. The logarithm
alone takes as long as the exponential inside of it.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.targets.schedules.lets import f32, named
from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import structural_map

_LARGEST: Final = 2.0**30
"""Where the quotient has been 1 for long, and its parts are not infinite yet."""
_SATURATED: Final = 10.0
"""From here on tanh is 1."""


def without_logarithms(node: Any) -> Any:
    """``node`` with ``tanh(log(1 + exp(x)))`` as arithmetic on ``exp(x)``, also where a choice lies between the two."""
    return structural_map(node, (tvm.ir.Call, _of_call))


def _of_call(call: Any) -> Any:
    found = _tanh(call.args[0]) if _is_single_call(call, "tirx.tanh") else None
    return call if found is None else found


def _tanh(x: Any) -> Any:
    """tanh of ``x`` by the exponential inside of it; ``None`` where there is none."""
    if _is_single_call(x, "tirx.log"):
        exponential = _above_one(x.args[0])
        return None if exponential is None else named(exponential, _of_exponential)
    otherwise = _tanh(x.false_value) if isinstance(x, tirx.Select) else None
    return None if otherwise is None else tirx.Select(x.condition, _where(x.condition, x.true_value), otherwise)


def _above_one(total: Any) -> Any:
    """``exp(x)`` of ``1 + exp(x)``: never negative, else the logarithm may have been NaN."""
    if not isinstance(total, tirx.Add):
        return None
    for one, other in ((total.a, total.b), (total.b, total.a)):
        if isinstance(one, tirx.FloatImm) and float(one.value) == 1.0 and _is_single_call(other, "tirx.exp"):
            return other
    return None


def _of_exponential(e: Any) -> Any:
    bounded = tirx.Select(f32(_LARGEST) < e, f32(_LARGEST), e)  # lets NaN pass
    return named(bounded, lambda e: named(e * (e + f32(2.0)), lambda n: n / (n + f32(2.0))))


def _where(condition: Any, x: Any) -> Any:
    """tanh of ``x`` where ``condition`` holds, which may say that it is large."""
    is_bound = isinstance(condition, tirx.LT) and isinstance(condition.a, tirx.FloatImm)
    if is_bound and float(condition.a.value) >= _SATURATED and tvm_ffi.structural_equal(condition.b, x):
        return f32(1.0)
    return tirx.tanh(x)


def _is_single_call(node: Any, name: str) -> bool:
    return is_call(node, name) and str(node.ty.dtype) == "float32"
