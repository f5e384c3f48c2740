"""Validation: both modules run on the same random inputs and their results are compared.

In: the input module and the optimised one. Out: nothing, or :class:`ValidationError` with the function and the result
that differs. Every public function whose parameters are tensors of known dtype is run, twice, symbolic sizes with two
different values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.targets import lower

ROUNDS = 2
RELATIVE_TOLERANCE = 1e-3
"""Of the largest element of a result: layouts change the order of no reduction, but the kernels' schedules do."""


class ValidationError(EqsatError):
    """The optimised module computes something else than the input."""


def check_equal(before: Any, after: Any, seed: int = 0) -> None:
    """Raises :class:`ValidationError` where the results of the two modules differ."""
    machines = [relax.VirtualMachine(lower(mod), tvm.cpu()) for mod in (before, after)]
    for global_var, function in before.functions_items():
        name = str(global_var.name_hint)
        if not isinstance(function, relax.Function) or name not in _public_names(before):
            continue
        for round_ in range(ROUNDS):
            inputs = random_inputs(function, np.random.default_rng(seed + round_), symbolic_size=2 + round_)
            if inputs is None:
                break
            results = [_flat(vm[name](*(tvm.runtime.tensor(x) for x in inputs))) for vm in machines]
            for i, (expected, got) in enumerate(zip(*results, strict=True)):
                _compare(name, i, expected, got)


def _public_names(mod: Any) -> set[str]:
    return {
        str(gv.name_hint)
        for gv, f in mod.functions_items()
        if isinstance(f, relax.Function) and f.attrs is not None and f.attrs.get("global_symbol") is not None
    }


def random_inputs(function: Any, rng: np.random.Generator, symbolic_size: int = 2) -> list[npt.NDArray[Any]] | None:
    """One array per parameter; ``None`` if a parameter is no tensor of known shape and a plain dtype."""
    inputs: list[npt.NDArray[Any]] = []
    sizes: dict[int, int] = {}
    for param in function.params:
        ty = param.ty
        if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
            return None
        shape: list[int] = []
        for extent in ty.shape.values:
            if isinstance(extent, tirx.IntImm):
                shape.append(int(extent))
            elif isinstance(extent, tirx.Var):
                shape.append(sizes.setdefault(hash(extent), symbolic_size))
            else:
                return None
        array = _random_array(shape, str(ty.dtype), rng)
        if array is None:
            return None
        inputs.append(array)
    return inputs


def _random_array(shape: list[int], dtype: str, rng: np.random.Generator) -> npt.NDArray[Any] | None:
    if dtype in ("float16", "float32", "float64"):
        return rng.standard_normal(shape).astype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        return rng.integers(0, 8, shape).astype(dtype)
    return None


def _flat(value: Any) -> Iterator[npt.NDArray[Any]]:
    if hasattr(value, "numpy"):
        yield value.numpy()
    elif hasattr(value, "__iter__"):
        for item in value:
            yield from _flat(item)


def _compare(name: str, index: int, expected: npt.NDArray[Any], got: npt.NDArray[Any]) -> None:
    if expected.shape != got.shape or expected.dtype != got.dtype:
        raise ValidationError(
            f"{name}: result {index} is {got.dtype}{got.shape} instead of {expected.dtype}{expected.shape}"
        )
    if expected.dtype.kind != "f":
        if not np.array_equal(expected, got):
            raise ValidationError(f"{name}: result {index} differs")
        return
    finite = expected[np.isfinite(expected)]
    tolerance = RELATIVE_TOLERANCE * float(np.abs(finite).max(initial=1.0))
    if not np.allclose(expected, got, rtol=RELATIVE_TOLERANCE, atol=tolerance, equal_nan=True):
        worst = float(np.nanmax(np.abs(expected.astype("float64") - got.astype("float64"))))
        raise ValidationError(f"{name}: result {index} differs by up to {worst:.3g}, tolerance {tolerance:.3g}")
