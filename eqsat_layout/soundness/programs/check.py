"""How the program fuzzer compares a module with what the optimiser made of it.

In: both modules. Out: in what they differ, in words; empty if in nothing. Both are built as one module, unscheduled and
without optimisation, so that kernels that they share are built once; and run on the same inputs: random ones, whole
numbers, and special ones.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax, tirx

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.graph.public_names import is_public
from eqsat_layout.graph.renaming import variable_like
from eqsat_layout.notes import last_of
from eqsat_layout.tir.structural import structural_map
from eqsat_layout.validation.exact import exact_results
from eqsat_layout.validation.inputs import NORMAL, SPECIAL, WHOLE, Draw, arrays_in
from eqsat_layout.validation.results import difference as exact_difference
from eqsat_layout.validation.results import public_functions, unequal

Arrays = list[npt.NDArray[Any]]

SIZES: Final = (2, 3)
"""Values of symbolic sizes."""
_TARGET: Final = {"kind": "llvm", "opt-level": 0}
SIDES: Final = ("before", "after")
TOLERANCES: Final = {"float64": 1e-6, "float32": 1e-4, "float16": 2e-2}
"""Of the largest element, by which rounding may differ."""
_WINOGRAD: Final = 1e-3
"""Tolerance of float32 where a convolution may be done in a way that rounds more."""
_NOISE: Final = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3}
"""By how much inputs are changed, relatively, to see how a program amplifies rounding."""


def interface_difference(before: Any, after: Any) -> str:
    """What the outside sees of the functions and is not as it was."""
    try:
        relax.analysis.well_formed(after)
    except Exception as error:  # on purpose: what TVM says of it is the difference
        return f"is not well formed: {last_of(error)}"
    names = {str(gv.name_hint) for gv in after.functions}
    for global_var, function in before.functions_items():
        name = str(global_var.name_hint)
        if name not in names:
            return f"has no function {name!r}"
        text = _function_difference(function, after[name])
        if text:
            return f"{name}: {text}"
    return ""


def _function_difference(function: Any, other: Any) -> str:
    if not isinstance(function, relax.Function):
        return "" if tvm_ffi.structural_equal(function, other) else "the PrimFunc differs"
    if [str(p.name) for p in function.params] != [str(p.name) for p in other.params]:
        return "its parameters have other names"
    if not tvm_ffi.structural_equal(function.ty, other.ty):
        return f"its type is {other.ty} instead of {function.ty}"
    if is_public(function) != is_public(other) or function.is_pure != other.is_pure:
        return "it is not as public or as pure as it was"
    return "" if _result_names(function) == _result_names(other) else "its results have other names"


def _result_names(function: Any) -> list[str]:
    result = function.body.body
    fields = result.fields if isinstance(result, relax.Tuple) else [result]
    return [str(getattr(f, "name", "")) for f in fields]


@dataclass(frozen=True)
class ProgramRun:
    """A run of a public function on inputs of a kind, and what it gave; ``exact``: results in which nothing rounds."""

    function: str
    kind: str
    inputs: Sequence[Any]
    before: Arrays
    after: Arrays
    exact: Sequence[bool]


class UnrunError(Exception):
    """The input module can be built, but not run."""


class Pair:
    """Both modules, built. Raises whatever TVM does for a module that can't be built."""

    tolerances: Mapping[str, float] = TOLERANCES

    def __init__(self, before: Any, after: Any):
        self._before = before
        self._modules = [legalize(before), legalize(after)]
        self._machine = unscheduled_machine(joined_modules(self._modules))

    def cases(self, seed: int, kinds: Sequence[str] = (NORMAL,)) -> Iterator[ProgramRun]:
        """Runs of all public functions on inputs of these kinds, of two sizes where there are symbols."""
        for name, function in public_functions(self._before):
            for size in SIZES if is_symbolic(function) else SIZES[:1]:
                for kind in kinds:
                    inputs = Draw(size, seed, kind).inputs(function)
                    try:
                        before = self.run(SIDES[0], name, inputs)
                    except Exception as error:  # on purpose: whatever TVM meets, there is nothing to compare with
                        raise UnrunError(last_of(error)) from error
                    after = self.run(SIDES[1], name, inputs)
                    yield ProgramRun(name, kind, inputs, before, after, self._exact(name, kind, inputs, len(before)))

    def _exact(self, name: str, kind: str, inputs: Sequence[Any], count: int) -> Sequence[bool]:
        if kind != WHOLE:
            return [False] * count
        before, after = (exact_results(mod, name, inputs) for mod in self._modules)
        return [a and b for a, b in zip(before, after, strict=True)]

    def run(self, side: str, name: str, inputs: Sequence[Any]) -> Arrays:
        """The results of one side."""
        return list(arrays_in(self._machine[f"{side}_{name}"](*inputs)))

    def is_noise(self, case: ProgramRun) -> bool:
        """Whether rounding alone makes the input module differ as much between two inputs that are almost the same."""
        rng = np.random.default_rng(1)
        for _ in range(3):
            moved = self.run("before", case.function, [_shaken(x, rng) for x in case.inputs])
            if all(
                _distance(expected, got) <= 4 * _distance(expected, near)
                for expected, got, near in zip(case.before, case.after, moved, strict=True)
                if difference_up_to_order(expected, got)
            ):
                return True
        return False


def case_difference(
    case: ProgramRun, number: int, *, approx: bool = False, tolerances: Mapping[str, float] = TOLERANCES
) -> str:
    """In what a result of a case differs: bit for bit where nothing rounds, and in which numbers are special."""
    expected, got = case.before[number], case.after[number]
    if case.exact[number]:
        return exact_difference(expected, got, is_exact=True)
    if case.kind != SPECIAL or str(expected.dtype) not in tolerances or expected.shape != got.shape:
        return difference_up_to_order(expected, got, approx=approx, tolerances=tolerances)
    wrong = ~is_as_special(expected, got)
    return f"differs in {int(wrong.sum())} of {wrong.size} special elements: {got[wrong][:3]}" if wrong.any() else ""


def is_as_special(expected: npt.NDArray[Any], got: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """For each element, whether both are NaN, the same infinity, zeros of one sign, or something else."""
    is_zero = (expected == 0) & (got == 0)
    same_sign = np.signbit(expected) == np.signbit(got)
    same = (np.isnan(expected) == np.isnan(got)) & (np.isinf(expected) == np.isinf(got))
    return np.asarray(same & (same_sign | ~(is_zero | np.isinf(expected))))


def difference_up_to_order(
    expected: npt.NDArray[Any],
    got: npt.NDArray[Any],
    *,
    approx: bool = False,
    tolerances: Mapping[str, float] = TOLERANCES,
) -> str:
    """In what two results differ, up to the order of additions."""
    if (expected.shape, expected.dtype) != (got.shape, got.dtype):
        return f"is {got.dtype}{got.shape} instead of {expected.dtype}{expected.shape}"
    tolerance = tolerances.get(str(expected.dtype))
    if tolerance is None:
        count = int(np.count_nonzero(unequal(expected, got)))
        return f"differs in {count} of {expected.size} elements" if count else ""
    if approx and expected.dtype == np.float32:
        tolerance = _WINOGRAD
    wide, found = expected.astype("float64"), got.astype("float64")
    scale = float(np.abs(wide[np.isfinite(wide)]).max(initial=1.0))
    close = np.isclose(found, wide, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    if close.all():
        return ""
    return f"differs in {int((~close).sum())} of {expected.size} elements, by up to {_distance(wide, found):.3g}"


def _distance(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    if not a.size:
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.nan_to_num(np.abs(a.astype("float64") - b.astype("float64")), nan=np.inf).max())


def _shaken(x: Any, rng: np.random.Generator) -> Any:
    """An input whose floats are changed in their last bits."""
    if not hasattr(x, "numpy"):
        fields = x if hasattr(x, "__iter__") and not isinstance(x, tvm.runtime.ShapeTuple) else None
        return x if fields is None else tvm_ffi.convert([_shaken(field, rng) for field in fields])
    array = x.numpy()
    noise = _NOISE.get(str(array.dtype))
    if noise is None:
        return x
    return tvm.runtime.tensor((array * (1 + noise * rng.uniform(-1, 1, array.shape))).astype(array.dtype))


def is_symbolic(function: Any) -> bool:
    """Whether sizes of a Relax function are not known."""
    return bool(relax.analysis.free_symbolic_vars(function) or relax.analysis.defined_symbolic_vars(function))


def joined_modules(modules: Sequence[Any]) -> Any:
    """One module of two, their functions named ``before_main``, ``after_main``; PrimFuncs that are the same once."""
    functions: dict[Any, Any] = {}
    kernels: dict[Any, Any] = {}
    for side, mod in zip(SIDES, modules, strict=True):
        names: dict[str, Any] = {}
        added = []
        for global_var, function in mod.functions_items():
            name = str(global_var.name_hint)
            key = None
            if isinstance(function, tirx.PrimFunc):
                if is_public(function):
                    function = function.without_attr("global_symbol")
                key = tvm_ffi.StructuralKey(function)
                if key in kernels:
                    names[name] = kernels[key]
                    continue
            names[name] = variable_like(global_var, f"{side}_{name}")
            if key is not None:
                kernels[key] = names[name]
            added.append((names[name], function))
        for variable, function in added:
            functions[variable] = _renamed(function, str(variable.name_hint), names)
    return tvm.IRModule(functions)


def _renamed(function: Any, name: str, names: dict[str, Any]) -> Any:
    if not isinstance(function, relax.Function):
        return function
    renamed = structural_map(function, (tvm.ir.GlobalVar, lambda v: names.get(str(v.name_hint), v)))
    return renamed.with_attr("global_symbol", name) if is_public(function) else renamed


def unscheduled_machine(mod: Any) -> Any:
    """A virtual machine that runs a module as TVM builds it by itself, without optimisation."""
    executable = tvm.compile(mod, tvm.target.Target(_TARGET))
    has_kernels = any(m.kind == "llvm" for m in executable.mod.imports)
    return relax.VirtualMachine(linked_library(executable) if has_kernels else executable, tvm.cpu())


def unscheduled_library(functions: Mapping[str, Any]) -> Any:
    """PrimFuncs, to be called by name, as :func:`unscheduled_machine` has them."""
    named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    return linked_library(tvm.compile(tvm.IRModule(named), tvm.target.Target(_TARGET)))


def linked_library(executable: Any) -> Any:
    """As a shared library where there is a linker: that takes a third of the time of TVM's just-in-time compiler, which
    optimises whatever the target says."""
    if shutil.which("ld") is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "program.so"
            try:
                executable.export_library(str(path), fcompile=_link, fpack_imports=_packed)
                return tvm.runtime.load_module(str(path))
            except (RuntimeError, OSError, subprocess.CalledProcessError):
                pass  # a symbol that only TVM's own linking supplies, for one
    return executable


def _link(output: str, objects: Sequence[str], options: Any = None, **_: Any) -> None:
    """Links at once and for good, so that what is missing is missed here and not in the middle of a run."""
    command = ["ld", "-shared", "-z", "now", "-z", "noexecstack", "-o", output, *objects]
    subprocess.run(command, check=True, capture_output=True)


def _packed(module: Any, _system_lib: bool, prefix: str, folder: str) -> str:
    """As TVM packs what is no code, but not as a system library, of which a process has one."""
    kernels = next(m for m in module.imports if m.kind == "llvm")
    blob = tvm.runtime._ffi_api.ModulePackImportsToLLVM(module, False, kernels["_get_target_string"](), prefix)
    path = str(Path(folder) / "packed.o")
    blob.write_to_file(path)
    return path
