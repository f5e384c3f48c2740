"""One module in all ways, in a process that may be lost.

In: a module as JSON and a way. Out: what became of it: the kind and a text. Stock TVM says what is right. It is run
twice, with other bytes in memory that nobody wrote: where it differs from itself, it says nothing.
"""

from __future__ import annotations

import ctypes
import os
import resource
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

import eqsat_layout
from bench.soundness.tvm_suite.inputs import (
    DIFFERENT,
    EQUAL,
    KINDS,
    Array,
    coarsest,
    compared,
    copied,
    is_open,
    whole_inputs,
)
from bench.soundness.tvm_suite.layouts import DESIRED, has_layouts
from eqsat_layout.errors import EqsatError
from eqsat_layout.graph.well_formed import well_formed
from eqsat_layout.notes import last_of
from eqsat_layout.soundness.programs.adversarial_costs import AdversarialCosts
from eqsat_layout.soundness.programs.check import interface_difference
from eqsat_layout.validation.inputs import NoInputsError, arrays_in
from eqsat_layout.validation.results import public_functions

REFUSED, REFUSED_ALONE, RAISED, UNRUN, NOTHING = "refused", "refused alone", "crash", "not run", "nothing to do"
"""``REFUSED_ALONE``: stock TVM runs it. ``RAISED``: no error of ours on purpose. ``UNRUN``: stock TVM can't build or
run it, and ours came to its end."""
STOCK_DIED: Final = "stock TVM's process was lost"

_SIZES: Final = (3, 5)
_MEMORY: Final = 12 << 30
_PERTURB: Final = -6
"""glibc's ``M_PERTURB``: which byte memory holds that nobody wrote."""


class NotLoadedError(Exception):
    """The module has an op that only its test registers."""


@dataclass(frozen=True)
class Case:
    """A run of stock TVM: the arrays of the results, then the inputs, which may have been written to."""

    function: str
    inputs: list[Any]
    arrays: list[Array]


@dataclass(frozen=True)
class Stock:
    """What stock TVM says; ``why`` it says nothing, or not of all functions."""

    mod: Any
    cases: list[Case]
    why: str
    is_built: bool


def tried(job: tuple[str, str, int, int]) -> tuple[str, str]:
    """What comes of the module at a path in one of :data:`WAYS`; then, how many kinds of inputs ended stock TVM's
    process, and the number of those that are tried at a time: each has one core."""
    path, way, lost, number = job
    _bounded(number)
    try:
        stock = _stock(path, lost) if lost < len(KINDS) else Stock(_loaded(path), [], STOCK_DIED, False)
    except NotLoadedError as error:
        return UNRUN, f"it can't be loaded: {error}"
    before = tvm.ir.save_json(stock.mod)
    try:
        kind, text = WAYS[way](stock)
    except EqsatError as error:
        kind, text = REFUSED_ALONE if stock.cases else REFUSED, last_of(error)
    except Exception as error:  # on purpose: whatever it is, it is the outcome
        kind, text = RAISED, f"{type(error).__name__} in {_place(error)}: {last_of(error)}"[:400]
    if tvm.ir.save_json(stock.mod) != before:
        return DIFFERENT, "the input was changed"
    return kind, text


@lru_cache(maxsize=1)
def _bounded(number: int) -> None:
    """On one core, with so much memory."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _place(error: BaseException) -> str:
    own = [f for f in traceback.extract_tb(error.__traceback__) if "eqsat_layout" in Path(f.filename).parts]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "?"


def _nothing(stock: Stock) -> tuple[str, str]:
    """Stock TVM alone."""
    return (EQUAL, stock.why) if stock.cases else (UNRUN, stock.why)


def _optimized(stock: Stock, **options: Any) -> tuple[str, str]:
    optimized = eqsat_layout.optimize(stock.mod, **options)
    if optimized is stock.mod:
        return NOTHING, ""
    again = eqsat_layout.optimize(stock.mod, **options)
    if not tvm_ffi.structural_equal(optimized, again):
        return DIFFERENT, "the second time it gives another module"
    text = interface_difference(well_formed(stock.mod), optimized)
    if text:
        return DIFFERENT, f"the optimised module {text}"
    if not stock.is_built:
        return UNRUN, stock.why
    return _agreement(stock, _stock_build(optimized))


def _desired(name: str) -> Callable[[Stock], tuple[str, str]]:
    def way(stock: Stock) -> tuple[str, str]:
        return _optimized(stock, desired_layouts=DESIRED[name]) if has_layouts(stock.mod) else (NOTHING, "")

    return way


def _compiled(stock: Stock, **options: Any) -> tuple[str, str]:
    try:
        executable = eqsat_layout.compile(stock.mod, **options)
    except EqsatError:
        raise
    except Exception as error:
        if stock.is_built:
            raise
        return UNRUN, f"neither builds it: {last_of(error)[:150]}"
    return _agreement(stock, executable)


WAYS: Final[Mapping[str, Callable[[Stock], tuple[str, str]]]] = {
    "stock": _nothing,
    "optimize": _optimized,
    "other costs": lambda stock: _optimized(stock, cost_model=AdversarialCosts(1)),
    "compile": _compiled,
    "compile(approx=False)": lambda stock: _compiled(stock, approx=False),
    **{name: _desired(name) for name in DESIRED},
}


def _agreement(stock: Stock, executable: Any) -> tuple[str, str]:
    if not stock.cases:
        return UNRUN, stock.why
    worst, coarse = (EQUAL, ""), coarsest(stock.mod)
    for case in stock.cases:
        found = compared(case.arrays, _run(executable, case.function, case.inputs), coarse)
        if found[0] == DIFFERENT:
            return found[0], f"{case.function}: {found[1]}"
        worst = max(worst, found, key=lambda pair: pair[0] != EQUAL)
    return worst


def _loaded(path: str) -> Any:
    """With all its Relax functions public if none is: those of a test that gives them to a pass alone."""
    try:
        mod = tvm.ir.load_json(Path(path).read_text())
    except AttributeError as error:
        raise NotLoadedError(last_of(error)) from error
    if not any(public_functions(mod)):
        for var, function in mod.functions_items():
            if isinstance(function, relax.Function):
                mod.update_func(var, function.with_attr("global_symbol", var.name_hint))
    return mod


@lru_cache(maxsize=1)
def _stock(path: str, lost: int) -> Stock:
    mod = _loaded(path)
    try:
        executable = _stock_build(mod)
    except Exception as error:  # on purpose: whatever stock TVM raises, it says nothing of this module
        what = "what has no shape or type" if any(is_open(f) for _, f in public_functions(mod)) else "it"
        return Stock(mod, [], f"stock TVM can't build {what}: {last_of(error)[:150]}", False)
    cases, reasons = list[Case](), list[str]()
    for name, function in sorted(public_functions(mod), key=lambda item: item[0]):
        for size in _SIZES if _is_symbolic(function) else _SIZES[:1]:
            found = _case(executable, name, function, size, list(KINDS)[lost:])
            if isinstance(found, Case):
                cases.append(found)
            else:
                reasons.append(f"{name}: {found}"[:200])
    return Stock(mod, cases, "; ".join(reasons) or ("" if cases else "no function is public"), True)


def _case(executable: Any, name: str, function: Any, size: int, kinds: Sequence[str]) -> Case | str:
    why = ""
    for kind_of_inputs, distinct in product(kinds, (True, False)):
        try:
            inputs = whole_inputs(function, size, size, kind_of_inputs, distinct=distinct)
            arrays, others = (_run(executable, name, inputs, byte) for byte in (0x40, 0xB3))
        except NoInputsError as error:
            return str(error)
        except Exception as error:  # on purpose: sizes that do not fit, an assertion of the test's
            why = why or f"stock TVM can't run it: {last_of(error)}"
            continue
        kind, text = compared(arrays, others)
        if kind != EQUAL:
            why = f"stock TVM differs from itself, with other bytes where it should not read: {text}"
            continue
        return Case(name, inputs, arrays)
    return why


def _is_symbolic(function: Any) -> bool:
    try:
        return bool(relax.analysis.free_symbolic_vars(function) or relax.analysis.defined_symbolic_vars(function))
    except tvm.error.InternalError:  # a function in which something has no type yet
        return False


def _stock_build(mod: Any) -> Any:
    return tvm.compile(mod, tvm.target.Target({"kind": "llvm"}))


def _run(executable: Any, name: str, inputs: list[Any], byte: int = 0x40) -> list[Array]:
    """What it gives, and its inputs afterwards. Memory that nobody wrote, and what lies around inputs, is ``byte``."""
    machine = relax.VirtualMachine(executable, tvm.cpu(), memory_cfg="naive")
    given = [copied(value, byte) for value in inputs]
    libc = ctypes.CDLL(None)
    libc.mallopt(_PERTURB, byte)
    try:
        result = machine[name](*given)
    finally:
        libc.mallopt(_PERTURB, 0)
    return [np.array(array) for value in (result, *given) for array in _arrays(value)]


def _arrays(value: Any) -> Iterator[Array]:
    return arrays_in(list(value) if isinstance(value, tvm.runtime.ShapeTuple) else value)
