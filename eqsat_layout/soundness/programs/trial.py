"""The trial of one random program: made, optimised, run before and after.

In: the choices that make the program. Out: a :class:`ProgramOutcome`. Whatever is raised on the way is caught on
purpose: a fault is a result here, named after the place that it comes from.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import tvm_ffi

from eqsat_layout.errors import EqsatError, LayoutError, TargetError
from eqsat_layout.notes import last_of
from eqsat_layout.planning.clock import Clock
from eqsat_layout.planning.compile import compile as compile_program
from eqsat_layout.planning.pipeline import optimize
from eqsat_layout.soundness.memory.kernels import memory_fault
from eqsat_layout.soundness.oracle.relax_interpreter import NotInterpretable, run_function
from eqsat_layout.soundness.programs.adversarial_costs import AdversarialCosts
from eqsat_layout.soundness.programs.check import (
    TOLERANCES,
    Pair,
    ProgramRun,
    UnrunError,
    case_difference,
    difference_up_to_order,
    interface_difference,
    is_symbolic,
)
from eqsat_layout.soundness.programs.choices import Choices
from eqsat_layout.soundness.programs.compiled import compiled_difference
from eqsat_layout.soundness.programs.generator import RandomProgram, make_program
from eqsat_layout.soundness.programs.on_targets import TargetPair, in_numpy, running
from eqsat_layout.soundness.programs.ops_edges import joined
from eqsat_layout.soundness.programs.ops_kernels import kernel
from eqsat_layout.soundness.programs.ops_quantised import quantised
from eqsat_layout.soundness.programs.outcomes import FAILED, NOISY, REFUSED, SAME, UNCHANGED, UNRUN, ProgramOutcome
from eqsat_layout.soundness.programs.tried import EXACTLY, Guarded, is_device
from eqsat_layout.soundness.programs.writer import Step
from eqsat_layout.targets.cpu.target import CpuTarget
from eqsat_layout.targets.opencl.host.device import HalfPrecisionError
from eqsat_layout.targets.protocol import Target
from eqsat_layout.targets.registry import target as target_of
from eqsat_layout.validation.inputs import NORMAL, SPECIAL, WHOLE, Draw
from eqsat_layout.validation.results import public_functions

OPINION_EVERY: Final = 10
"""Compared programs in one of which the reference interpreter is asked too."""
THREADS_EVERY: Final = 16
"""Programs in one of which several threads optimise at once."""
_THREADS: Final = 3
_MOSTLY_EVERY: Final = 8
"""Programs in one of which most steps are of one kind, whose faults show in few of them."""

GUARDED_SIZES: Final = (1, 9, 17)
"""Values of symbolic sizes where operands are guarded: no multiples of a vector."""


def mostly(seed: int, target: Any) -> Step | None:
    """What most steps of that seed's program are: products of bytes; kernels that no op has, or on devices what
    simplifiers take for other ops."""
    kinds = {3: quantised, 7: quantised, 5: kernel}
    if is_device(target):
        kinds |= {1: joined, 5: joined}
    return kinds.get(seed % _MOSTLY_EVERY)


def program_of(choices: Choices, seed: int, target: Any = None) -> RandomProgram:
    """The program that is tried for a seed and a target."""
    odd = isinstance(target, Guarded)
    return make_program(choices, known_sizes=is_device(target), mostly=mostly(seed, target), odd=odd)


Optimizer = Callable[..., Any]
"""``optimize``, or one of its kind with a fault."""


def check_program(
    choices: Choices,
    seed: int,
    rules: Sequence[str | Path] = (),
    optimizer: Optimizer = optimize,
    target: Any = None,
) -> ProgramOutcome:
    """Makes a program, optimises it and compares; ``seed`` is for its inputs, ``rules`` are further files.

    ``target``: it is compiled for that as a whole, and run there; :data:`EXACTLY` for this CPU without approximations.
    """
    clock = Clock()
    try:
        with clock.stage("make"):
            program = program_of(choices, seed, target)
    except Exception as error:  # on purpose, as in all of this file: see above
        return _finished(choices, None, clock, _raised("making the program", error))
    try:
        options = {**program.options, "rules": rules}
        approx = options.get("approx", True)
        if is_device(target) and seed % 2:  # half of the programs have the layouts that costs at random like best
            options["cost_model"] = AdversarialCosts(seed)
        if target is None:
            found = _checked(program, seed, clock, partial(optimizer, **options))
        elif target == EXACTLY:
            found = _checked_exactly(program, seed, clock)
        elif isinstance(target, Guarded):
            found = _checked_guarded(target.cpu(approx=approx), program, seed, clock, options)
        else:
            found = _checked_on(target_of(target, approx=approx), program, seed, clock, options)
    except Exception as error:  # whatever optimize, TVM or the comparison meets
        found = _raised("checking the program", error)
    return _finished(choices, program, clock, found)


def _finished(choices: Choices, program: RandomProgram | None, clock: Clock, found: ProgramOutcome) -> ProgramOutcome:
    text = program.text() if program is not None and found.kind == FAILED else ""
    record, spans = tuple(choices.record), tuple(choices.spans)
    return ProgramOutcome(found.kind, found.why, found.text, record, spans, text, found.asked, clock.seconds)


def _checked(program: RandomProgram, seed: int, clock: Clock, optimizer: Optimizer) -> ProgramOutcome:
    mod = program.module
    fingerprint = tvm_ffi.structural_hash(mod)
    try:
        with clock.stage("optimize"):
            optimized, *others = _optimized(mod, optimizer, _THREADS if seed % THREADS_EVERY == 1 else 1)
    except LayoutError as error:
        return ProgramOutcome(REFUSED, text=_without_numbers(str(error)))
    except Exception as error:
        return _raised("optimize", error)
    if any(not tvm_ffi.structural_equal(optimized, other) for other in others):
        return ProgramOutcome(FAILED, "threads", "threads that optimise at once give different modules")
    if tvm_ffi.structural_hash(mod) != fingerprint:
        return ProgramOutcome(FAILED, "the input was changed", "optimize changed the module that it was given")
    if optimized is mod:
        return ProgramOutcome(UNCHANGED)
    with clock.stage("interface"):
        text = interface_difference(mod, optimized)
    if text:
        return ProgramOutcome(FAILED, "interface", f"the optimised module {text}")
    try:
        with clock.stage("build"):
            pair = Pair(mod, optimized)
    except Exception as error:
        return _raised_or_not_built(program, "building the optimised module", error)
    with clock.stage("run"):
        try:
            approx = program.options.get("approx", True) and program.options.get("candidates", True)
            return _compared(program, pair, seed, approx=approx)
        except UnrunError as error:
            return ProgramOutcome(UNRUN, text=_without_numbers(f"TVM can't run the input: {str(error)[:150]}"))


def _checked_on(
    own: Target, program: RandomProgram, seed: int, clock: Clock, options: dict[str, Any]
) -> ProgramOutcome:
    try:
        with clock.stage("compile"):
            executable = compile_program(program.module, own, **options)
    except (LayoutError, TargetError) as error:
        return ProgramOutcome(REFUSED, text=_without_numbers(str(error)))
    except Exception as error:
        return _raised_or_not_built(program, "compile", error)
    try:
        with clock.stage("build"):
            device = running(executable, own, seed)
    except HalfPrecisionError as error:
        return ProgramOutcome(UNRUN, text=_without_numbers(str(error)))
    except TargetError:  # there is no device for it here, which is no property of the program
        raise
    except Exception as error:
        return _raised("building for the target", error)
    try:
        with clock.stage("build"):
            pair = TargetPair(program.module, device)
    except Exception as error:
        return _not_built(error)
    with clock.stage("run"):
        try:
            return _compared(program, pair, seed, approx=own.approx)
        except UnrunError as error:
            return ProgramOutcome(UNRUN, text=_without_numbers(f"TVM can't run the input: {str(error)[:150]}"))


def _checked_exactly(program: RandomProgram, seed: int, clock: Clock) -> ProgramOutcome:
    with clock.stage("compile"):
        text = compiled_difference(program, seed)
    if text is None:
        return ProgramOutcome(UNRUN, text="TVM can't build the input, or gives it other types")
    return ProgramOutcome(FAILED, "special numbers", text) if text else ProgramOutcome(SAME)


def _checked_guarded(
    own: CpuTarget, program: RandomProgram, seed: int, clock: Clock, options: dict[str, Any]
) -> ProgramOutcome:
    try:
        with clock.stage("compile"):
            executable = compile_program(program.module, own.at_any_address, **options)
    except LayoutError as error:
        return ProgramOutcome(REFUSED, text=_without_numbers(str(error)))
    except Exception as error:
        return _raised_or_not_built(program, "compile", error)
    calls = [
        (name, Draw(size, seed).inputs(function))
        for name, function in public_functions(program.module)
        for size in (GUARDED_SIZES if is_symbolic(function) else GUARDED_SIZES[:1])
    ]
    try:
        with clock.stage("run"):
            text = memory_fault(executable, calls)
    except EqsatError as error:
        return ProgramOutcome(UNRUN, text=_without_numbers(str(error).splitlines()[0][:150]))
    return ProgramOutcome(FAILED, "memory", text) if text else ProgramOutcome(SAME)


def _raised_or_not_built(program: RandomProgram, stage: str, error: Exception) -> ProgramOutcome:
    """A failure, unless TVM itself can't build the program."""
    try:
        Pair(program.module, program.module)
    except Exception as own:
        return _not_built(own)
    return _raised(stage, error)


def _not_built(error: BaseException) -> ProgramOutcome:
    return ProgramOutcome(UNRUN, text=_without_numbers(f"TVM can't build the input: {last_of(error)[:150]}"))


def _optimized(mod: Any, optimizer: Optimizer, threads: int) -> list[Any]:
    """What so many threads at once make of the module."""
    if threads == 1:
        return [optimizer(mod)]
    with ThreadPoolExecutor(threads) as pool:
        return [task.result() for task in [pool.submit(optimizer, mod) for _ in range(threads)]]


def _compared(program: RandomProgram, pair: Pair, seed: int, *, approx: bool) -> ProgramOutcome:
    """``approx``: what was made of the program may round otherwise, and be no number where an operand is infinite."""
    kind, asked = SAME, ""
    for number, case in enumerate(pair.cases(seed, (NORMAL, WHOLE) if approx else (NORMAL, WHOLE, SPECIAL))):
        for i in range(len(case.before)):
            text = case_difference(case, i, approx=approx, tolerances=pair.tolerances)
            if not text:
                continue
            if not case.exact[i] and case.kind != SPECIAL and pair.is_noise(case):
                kind = NOISY
                continue
            opinion = _opinion(program, case)[1]
            said = f"{case.function}: result {i} {text} on {case.kind} inputs{opinion and '; ' + opinion}"
            return ProgramOutcome(FAILED, f"{case.kind} numbers", said)
        if seed % OPINION_EVERY == 0 and number == 0:
            asked, text, found = _opinion(program, case)
            if asked == "disagrees" and not pair.is_noise(replace(case, after=found)):
                return ProgramOutcome(FAILED, "interpreter", f"{case.function}: {text}", asked=asked)
    return ProgramOutcome(kind, asked=asked)


_OF_OPINIONS: Final = {**TOLERANCES, "bfloat16": 0.1}
"""TVM's kernels keep sums of bfloat16 in float32, the interpreter rounds each step."""


def _opinion(program: RandomProgram, case: ProgramRun) -> tuple[str, str, list[Any]]:
    """What the reference interpreter says of the input module: a word for the statistics, a sentence, its results."""
    try:
        results = _flat(run_function(program.module, case.function, [in_numpy(x) for x in case.inputs]))
    except NotInterpretable:
        return "can't say", "", []
    for i, (found, expected) in enumerate(zip(results, case.before, strict=True)):
        text = difference_up_to_order(expected, found, approx=True, tolerances=_OF_OPINIONS)
        if text:
            return "disagrees", f"the interpreter's result {i} {text} from what TVM makes of the input", results
    return "agrees", "the interpreter agrees with what TVM makes of the input", results


def _flat(result: Any) -> list[Any]:
    return [a for field in result for a in _flat(field)] if isinstance(result, list) else [np.asarray(result)]


def _raised(where: str, error: BaseException) -> ProgramOutcome:
    """The failure that ``error`` is, named after the place of this package that it comes from and what it says."""
    own = [f for f in traceback.extract_tb(error.__traceback__) if "eqsat_layout" in Path(f.filename).parts]
    place = f"{Path(own[-1].filename).name}:{own[-1].name}" if own else "?"
    text = last_of(error)
    why = f"{where} raised {type(error).__name__} in {place}: {_cause(text)}"
    return ProgramOutcome(FAILED, why, text + "\n" + "".join(traceback.format_tb(error.__traceback__)[-4:]))


def _cause(text: str) -> str:
    """Without numbers and names of kernels, which a smaller program that fails in the same way has not."""
    return " ".join(word for word in text.split() if not any(c.isdigit() or c == "_" for c in word))


def _without_numbers(text: str) -> str:
    return "".join("#" if c.isdigit() else c for c in text)
