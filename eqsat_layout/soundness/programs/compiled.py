"""Random programs compiled with ``approx=False`` beside TVM's own build, on inputs with NaN, infinities and zeros.

In: seeds of programs. Out: in what the results differ, in words. An element is right if TVM gives it with or without
LLVM's optimisation, which forgets a NaN here and there, or with the multiply-adds of this machine, which round once and
so overflow elsewhere. ``python -m eqsat_layout.soundness.programs.compiled 0 100``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax

from eqsat_layout.graph.op_names import ops_in
from eqsat_layout.planning.compile import compile as compiled
from eqsat_layout.soundness.programs.check import TOLERANCES, is_as_special
from eqsat_layout.soundness.programs.choices import Choices
from eqsat_layout.soundness.programs.generator import RandomProgram, make_program
from eqsat_layout.system.own_cpu import own_cpu
from eqsat_layout.tir.structural import nodes_of
from eqsat_layout.validation.inputs import arrays_in, random_inputs
from eqsat_layout.validation.results import public_functions, unequal

_SPECIAL: Final = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 1.0, -1.0)
_SHARES: Final = (0.05, 0.4)
_FEW: Final = 0.1
_SIZE: Final = 2
_BUILDS: Final = (
    {"kind": "llvm", "opt-level": 0},
    {"kind": "llvm"},
    own_cpu().config,
)
_FAULTS: Final = (tvm.error.InternalError, RuntimeError, ValueError, TypeError)
"""What TVM raises of programs that it can't build or run."""


def compiled_difference(program: RandomProgram, seed: int) -> str | None:
    """Empty where the results agree, in a program that quantises but for steps of a few elements: products of what
    bytes stand for are exact, which TVM rounds.

    ``None`` where TVM can't build or run the program, or its kernels give other types than Relax says: what is made of
    these numbers then depends on where they are cast.
    """
    mod = program.module
    try:
        if not _is_typed_as_written(mod):
            return None
        stock = [_machine(tvm.compile(mod, tvm.target.Target(build))) for build in _BUILDS]
    except _FAULTS:
        return None
    own = _machine(compiled(mod, approx=False))
    is_rounded = "relax.quantize" in ops_in(mod)
    for name, function in public_functions(mod):
        for share in _SHARES:
            rng = np.random.default_rng(seed)
            inputs = [_spiced(x, rng, share) for x in random_inputs(function, _SIZE, seed)]
            results = [list(arrays_in(own[name](*inputs)))]
            try:
                results += [list(arrays_in(machine[name](*inputs))) for machine in stock]
            except _FAULTS:
                return None
            for number, (found, *expected) in enumerate(zip(*results, strict=True)):
                wrong = ~np.logical_or.reduce([_is_same(one, found) for one in expected])
                if is_rounded and wrong.mean() < _FEW:
                    wrong = ~np.logical_or.reduce([is_as_special(one, found) for one in expected])
                if wrong.any():
                    return f"{name}: result {number} differs in {wrong.sum()} elements: {found[wrong][:3]}"
    return ""


def _is_typed_as_written(mod: Any) -> bool:
    """Legalised variables have the types of what they stand for."""
    types, legalised = _types(mod), _types(relax.transform.LegalizeOps()(mod))
    return all(legalised.get(name, dtype) == dtype for name, dtype in types.items())


def _types(mod: Any) -> dict[tuple[str, str], str]:
    return {
        (global_var.name_hint, binding.var.name): str(binding.var.ty.dtype)
        for global_var, function in mod.functions_items()
        if isinstance(function, relax.Function)
        for binding in nodes_of(function, relax.VarBinding)
        if isinstance(binding.var.ty, relax.TensorType)
    }


def _machine(executable: Any) -> Any:
    return relax.VirtualMachine(executable, tvm.cpu())


def _spiced(x: Any, rng: np.random.Generator, share: float) -> Any:
    """An input with special values among its elements: ends of integers, too."""
    if not hasattr(x, "numpy"):
        is_tuple = hasattr(x, "__iter__") and not isinstance(x, tvm.runtime.ShapeTuple)
        return tvm_ffi.convert([_spiced(field, rng, share) for field in x]) if is_tuple else x
    array = x.numpy().copy()
    chosen = rng.random(array.shape) < share
    pool: Sequence[float] = ()
    if array.dtype.kind == "f":
        pool = _SPECIAL
    elif array.dtype.kind == "i":
        ends = np.iinfo(array.dtype)
        pool = (ends.min, ends.min + 1, -1, 0, ends.max - 1, ends.max)
    if pool:
        array[chosen] = np.array(pool)[rng.integers(0, len(pool), int(chosen.sum()))].astype(array.dtype)
    return tvm.runtime.tensor(array)


def _is_same(expected: npt.NDArray[Any], found: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Equality by element, of zeros with their signs."""
    tolerance = TOLERANCES.get(str(expected.dtype))
    if tolerance is None:
        return ~unequal(expected, found)
    a, b = found.astype("float64"), expected.astype("float64")
    largest = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    with np.errstate(invalid="ignore"):
        near = (np.abs(a - b) <= tolerance * largest) | (a == b)
    signs = (a != 0) | (b != 0) | (np.signbit(a) == np.signbit(b))
    return np.asarray(near & signs | np.isnan(a) & np.isnan(b))


def main(first: int, last: int) -> int:
    """Checks the programs of the seeds from ``first`` to ``last`` and prints those that differ."""
    failed = 0
    for seed in range(first, last):
        text = compiled_difference(make_program(Choices.of_seed(seed)), seed)
        if text:
            failed += 1
            print(f"seed {seed}: {text}")
    print(f"{last - first} programs, {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
