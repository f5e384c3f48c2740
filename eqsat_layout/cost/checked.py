"""A cost model of the user's, asked with care.

In: any object with the methods of :class:`CostModel`. Out: one whose every answer is a number of seconds, or
:class:`CostError` with the op and the answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat_layout.errors import CostError
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.maps import Format, Formats


def checked_cost_model(model: Any, who: str = "cost_model") -> CheckedCosts:
    """``model`` with its answers checked; :class:`CostError` if it has not the methods of a cost model.

    ``who``: how errors call it.
    """
    for name in ("run", "convert"):
        if not callable(getattr(model, name, None)):
            raise CostError(f"{who} must have the methods run and convert, got {model!r}")
    return CheckedCosts(model, who)


class CheckedCosts:
    """Seconds may be infinite, which forbids, never negative or no number."""

    def __init__(self, model: Any, who: str):
        self._model, self._who = model, who

    def run(self, op: Signature, operands: Formats, results: Formats, *, fused: frozenset[int] = frozenset()) -> float:
        """As the model says."""
        return self._asked(f"run of {op.name}", "run", op, operands, results, fused=fused)

    def convert(self, tensor: TensorType, source: Format, target: Format, *, fused: bool = False) -> float:
        """As the model says."""
        what = f"convert of a tensor of shape {tensor.shape} from {source} to {target}"
        return self._asked(what, "convert", tensor, source, target, fused=fused)

    def constant(self, tensor: TensorType, fmt: Format) -> float:
        """As the model says; copies are free where it says nothing."""
        if getattr(self._model, "constant", None) is None:
            return 0.0
        return self._asked(f"constant of shape {tensor.shape}", "constant", tensor, fmt)

    def _asked(self, what: str, method: str, *args: Any, **kwargs: Any) -> float:
        try:
            seconds = getattr(self._model, method)(*args, **kwargs)
        except Exception as error:  # code of the user's
            raise CostError(f"{self._who}: {what} raised {type(error).__name__}: {error}") from error
        if isinstance(seconds, bool) or not isinstance(seconds, int | float | np.number) or not float(seconds) >= 0:
            raise CostError(f"{self._who}: {what} must be a number of seconds, got {seconds!r}")
        return float(seconds)
