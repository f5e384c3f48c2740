"""How the tests compare a module with what the optimiser made of it, cheaply: unscheduled kernels, built without
optimisation. ``programs.assert_same`` is the dearer one, through the project's own schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.soundness.programs.check import SIDES, joined_modules, unscheduled_machine
from eqsat_layout.validation.inputs import arrays_in, random_inputs
from eqsat_layout.validation.results import public_functions


def assert_same_fast(before: Any, after: Any, sizes: tuple[int, ...] = (3,)) -> None:
    """As ``programs.assert_same``; symbolic sizes take each value of ``sizes``, inputs may be tuples."""
    assert_same_interface(before, after)
    assert_same_results(before, after, sizes)


def assert_same_interface(before: Any, after: Any) -> None:
    """Well formed, and what the outside sees of the functions is as it was."""
    relax.analysis.well_formed(after)
    for global_var, function in before.functions_items():
        name = str(global_var.name_hint)
        other = after[name]
        if not isinstance(function, relax.Function):
            assert tvm_ffi.structural_equal(function, other), name
            continue
        assert [str(p.name) for p in function.params] == [str(p.name) for p in other.params], name
        assert tvm_ffi.structural_equal(function.ty, other.ty), name
        assert tvm_ffi.structural_equal(relax.Tuple(list(function.params)), relax.Tuple(list(other.params)), True), name
        assert _result_names(function) == _result_names(other), name
        assert function.is_pure == other.is_pure


def assert_same_results(before: Any, after: Any, sizes: tuple[int, ...] = (3,)) -> None:
    """All public functions give the same numbers. Fails if there is none that can be run."""
    both = unscheduled_machine(joined_modules([legalize(before), legalize(after)]))
    count = 0
    for name, function in public_functions(before):
        for size in sizes:
            inputs = inputs_for(function, size)
            expected, got = (arrays_in(both[f"{side}_{name}"](*inputs)) for side in SIDES)
            for a, b in zip(expected, got, strict=True):
                assert_close(a, b)
                count += 1
    assert count, "nothing was compared"


def machine(mod: Any) -> Any:
    """A virtual machine that runs ``mod``."""
    return unscheduled_machine(legalize(mod))


def stock_results(mod: Any, *inputs: Any) -> list[npt.NDArray[Any]]:
    """What ``main`` returns when TVM builds it by itself, flat."""
    return list(arrays_in(unscheduled_machine(mod)["main"](*map(tvm.runtime.tensor, inputs))))


def inputs_for(function: Any, size: int, seed: int = 0) -> list[Any]:
    """Random tensors, tuples of them, or shapes, for every parameter of ``function``."""
    return random_inputs(function, size, seed)


def assert_close(expected: npt.NDArray[Any], got: npt.NDArray[Any]) -> None:
    """The same up to the order of additions."""
    assert (expected.shape, expected.dtype) == (got.shape, got.dtype)
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected)
        return
    scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=1.0))
    tolerance = 2e-2 if expected.dtype == np.float16 else 1e-4
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * scale)


def _result_names(function: Any) -> list[str]:
    result = function.body.body
    fields = result.fields if isinstance(result, relax.Tuple) else [result]
    return [str(getattr(f, "name", "")) for f in fields]
