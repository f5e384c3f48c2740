"""What recurrent layers do to the sums of their gates, as ONNX names and defines it.

In: a value of a tensor expression. Out: another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tvm import te, tirx


@dataclass(frozen=True)
class Activation:
    """``alpha``, ``beta``: by default those of ONNX. ``clip``: the largest size of what is given."""

    name: str
    alpha: float | None = None
    beta: float | None = None
    clip: float = math.inf

    def __call__(self, value: Any) -> Any:
        value = value.asobject() if isinstance(value, te.tensor.TensorSlice) else value

        def number(of: float) -> Any:
            return tirx.const(of, value.ty.dtype)

        if self.clip < math.inf:
            value = te.max(te.min(value, number(self.clip)), number(-self.clip))
        make, *usual = ACTIVATIONS[self.name]
        given = (self.alpha, self.beta)[: len(usual)]
        return make(value, number, *(number(b if a is None else a) for a, b in zip(given, usual, strict=True)))


ACTIVATIONS: Final[dict[str, tuple[Callable[..., Any], *tuple[float, ...]]]] = {
    "Affine": (lambda x, _, a, b: a * x + b, 1.0, 0.0),
    "Elu": (lambda x, n, a: tirx.Select(x < n(0), a * (te.exp(x) - n(1)), x), 1.0),
    "HardSigmoid": (lambda x, n, a, b: te.max(te.min(a * x + b, n(1)), n(0)), 0.2, 0.5),
    "LeakyRelu": (lambda x, n, a: tirx.Select(x < n(0), a * x, x), 0.01),
    "Relu": (lambda x, n: te.max(x, n(0)),),
    "ScaledTanh": (lambda x, _, a, b: a * te.tanh(b * x), 1.0, 1.0),
    "Sigmoid": (lambda x, _: te.sigmoid(x),),
    "Softplus": (lambda x, n: te.max(x, n(0)) + te.log(n(1) + te.exp(-te.abs(x))),),
    "Softsign": (lambda x, n: x / (n(1) + te.abs(x)),),
    "Tanh": (lambda x, _: te.tanh(x),),
    "ThresholdedRelu": (lambda x, n, a: tirx.Select(x < a, n(0), x), 1.0),
}
"""By name: what is made of a value, a function that gives numbers of its type, ``alpha`` and ``beta``, and the usual
ones of these."""
