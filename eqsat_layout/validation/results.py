"""Running the functions of a module, and comparing what they give.

In: modules, inputs, results. Out: arrays, and in what they differ in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from eqsat_layout.graph.public_names import is_public
from eqsat_layout.targets.lowering import lower
from eqsat_layout.targets.protocol import Target
from eqsat_layout.validation.inputs import arrays_in

_FLOOR = 0.01  # of the tolerance for the largest element
FEW = 8  # elements of a row or channel below which it is not judged by itself
_TOLERANCES = {"float64": 1e-6, "float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}
"""Of the largest element of a result: layouts change the order of no reduction, but the kernels' schedules do."""


def public_functions(mod: Any) -> Iterator[tuple[str, Any]]:
    """The Relax functions that can be called from outside, by name."""
    for global_var, function in mod.functions_items():
        if isinstance(function, relax.Function) and is_public(function):
            yield str(global_var.name_hint), function


def machine_for(mod: Any, target: Target, built: Any = None) -> Any:
    """A virtual machine that runs ``mod`` on the device of ``target``; ``built``: what it was compiled to before."""
    return relax.VirtualMachine(lower(mod, target) if built is None else built, target.device)


def run_in_machine(machine: Any, name: str, inputs: Sequence[Any]) -> list[npt.NDArray[Any]]:
    """The arrays that function ``name`` gives."""
    return list(arrays_in(machine[name](*inputs)))


def difference(expected: npt.NDArray[Any], got: npt.NDArray[Any], *, is_exact: bool = False) -> str:
    """In what two results differ, in words; empty if they are the same, up to rounding if not ``is_exact``."""
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return f"is {got.dtype}{got.shape} instead of {expected.dtype}{expected.shape}"
    if is_exact:
        count = int(np.count_nonzero(expected != got))
        return f"differs in {count} of {expected.size} elements, where nothing rounds" if count else ""
    share = _TOLERANCES.get(str(expected.dtype))
    if share is None:
        return "differs" if unequal(expected, got).any() else ""
    if close(expected, got).all():
        return ""
    expected, got = expected.astype("float64"), got.astype("float64")
    allowed = _allowed(expected, share)
    with np.errstate(invalid="ignore"):
        worst = np.abs(expected - got)
    wrong = int(np.count_nonzero(~np.isfinite(got) & np.isfinite(expected)))
    if wrong:
        return f"has {wrong} elements that are no numbers but should be"
    beyond = np.where(np.isnan(worst), np.inf, worst - allowed)
    place = np.unravel_index(int(np.argmax(beyond)), worst.shape)
    return f"differs by {worst[place]:.3g} at {tuple(map(int, place))}, tolerance {allowed[place]:.3g}"


def close(expected: npt.NDArray[Any], got: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """For each element, whether floats of one dtype and shape are the same, up to rounding."""
    share = _TOLERANCES[str(expected.dtype)]
    expected, got = expected.astype("float64"), got.astype("float64")
    with np.errstate(invalid="ignore"):
        within = np.abs(expected - got) <= _allowed(expected, share)
    return np.asarray(np.isclose(got, expected, rtol=share, atol=0.0, equal_nan=True) | within)


def unequal(expected: npt.NDArray[Any], got: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """For each element, whether they are different numbers, or only one is none. NumPy has narrow floats of others."""
    differs = expected != got
    if "float" in str(expected.dtype):
        differs &= ~(np.isnan(expected) & np.isnan(got))
    return np.asarray(differs)


def _allowed(expected: npt.NDArray[Any], share: float) -> npt.NDArray[Any]:
    """How far each element may be off: a share of the largest one of its row, column, channel, whichever is smallest.

    A hundredth of that of the largest element of all is allowed everywhere: sums that cancel are not exact. Rows of few
    elements say nothing of how large their numbers might have been: logits of one image are columns of one.
    """
    sizes = np.abs(np.where(np.isfinite(expected), expected, 0.0))
    largest = float(sizes.max(initial=0.0)) or 1.0
    allowed = np.full(expected.shape, share * largest)
    for axis in range(expected.ndim if expected.ndim > 1 else 0):
        others = tuple(i for i in range(expected.ndim) if i != axis)
        if expected.size < FEW * expected.shape[axis]:
            continue
        allowed = np.minimum(allowed, share * sizes.max(axis=others, keepdims=True, initial=0.0))
    return np.asarray(np.maximum(allowed, _FLOOR * share * largest))
