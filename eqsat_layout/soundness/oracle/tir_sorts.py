"""TIR's calls of TVM's own library of sorts, which run as they are.

In: an ``Evaluate`` of such a call. Out: its ``Step``. The arrays of which nothing is defined before are those that it
writes. Sorting is well defined where no number is NaN, and all that is read is defined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from eqsat_layout.errors import ILL_TYPED
from eqsat_layout.soundness.oracle.tir_values import Array, Frame, InterpreterError, Mask, Step
from eqsat_layout.tir.arithmetic import are_floats
from eqsat_layout.tir.intrinsics import is_call

SORTS = "tvm.contrib.sort."
"""What the names of its functions begin with."""


def sort_call(statement: Any) -> tuple[str, list[Any], list[Any]] | None:
    """The name of the function that a statement calls, its buffers, and the numbers behind them; None if it is no call
    of this library."""
    if type(statement) is not tirx.Evaluate or not is_call(statement.value, "tirx.tvm_call_packed"):
        return None
    name, *arguments = statement.value.args
    if not str(getattr(name, "value", "")).startswith(SORTS):
        return None
    arrays = [a.args[0].args[0] for a in arguments if is_call(a, "tirx.tvm_stack_make_array")]
    settings = [getattr(a, "value", None) for a in arguments[len(arrays) :]]
    return None if None in settings else (str(name.value), arrays, settings)


def call_library(name: str, arrays: Sequence[Any], settings: Sequence[Any]) -> None:
    """Calls the function; :class:`InterpreterError` where there is no such axis: it writes beside the arrays then."""
    axis, rank = int(settings[name.endswith(".topk")]), len(arrays[0].shape)  # of that how many are taken comes first
    if not -rank <= axis < rank:
        raise InterpreterError(f"{name} of axis {axis} of {rank}")
    try:
        tvm.get_global_func(name)(*arrays, *settings)
    except ILL_TYPED as error:  # dtypes that it does not sort
        raise InterpreterError(str(error)) from error


def run_sort(name: str, numbers: list[int], settings: list[Any]) -> Step:
    """The step that calls the function on buffers of these numbers."""

    def step(frame: Frame, taken: Mask | None) -> None:
        if taken is not None and not taken.all():
            raise InterpreterError(f"{name} is called in some worlds only")
        written = [n for n in numbers if not _mask(frame, n).any()]
        read = [n for n in numbers if n not in written]
        for n in read:
            values = frame.values[n]
            if not _mask(frame, n).all():
                raise InterpreterError(f"{name} reads what is not defined")
            if are_floats(values.dtype) and np.isnan(values).any():
                raise InterpreterError("NaN has no place in an order")
            if n is not read[0] and not _all_between(values, frame.values[read[0]].shape[1:][int(settings[0])]):
                raise InterpreterError(f"{name} would sort more elements than there are")
        for world in range(frame.worlds):
            arrays = [tvm.runtime.tensor(np.ascontiguousarray(frame.values[n][world])) for n in numbers]
            call_library(name, arrays, settings)
            for n, array in zip(numbers, arrays, strict=True):
                if n in written:
                    frame.values[n][world] = array.numpy()
        for n in written:
            frame.masks[n] = None

    return step


def _all_between(counts: Array, most: int) -> bool:
    """Whether how many are to be sorted of each row along an axis, which the first number names, is no more than it
    has."""
    return bool(((counts >= 0) & (counts <= most)).all())


def _mask(frame: Frame, number: int) -> Array:
    mask = frame.masks[number]
    return np.ones(1, bool) if mask is None else mask
