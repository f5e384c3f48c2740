"""Validation: both modules run on the same random inputs and their results are compared.

In: the input module and the optimised one, and how it was planned. Out: notes on what could not be run, or
:class:`ValidationError` with the function, the result and the first op that differs. The optimised module is run once
as it is, and twice with poison in every undef element of every buffer. On whole numbers, results that are exact must be
the same bit for bit; where kernels are exact in NaN and infinities, these are among the inputs, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt
import tvm

from eqsat_layout.errors import EqsatError, ValidationError
from eqsat_layout.extract.region import Region
from eqsat_layout.graph.emit import emit_module
from eqsat_layout.graph.graph import Program
from eqsat_layout.notes import last_of
from eqsat_layout.passes.evaluate import evaluate
from eqsat_layout.targets.protocol import Target
from eqsat_layout.targets.registry import target as target_of
from eqsat_layout.validation.blame import Blame
from eqsat_layout.validation.double_precision import DoublePrecision
from eqsat_layout.validation.exact import exact_results
from eqsat_layout.validation.inputs import NORMAL, SPECIAL, WHOLE, Draw, NoInputsError
from eqsat_layout.validation.poison import POISONS, has_undef, poisoned
from eqsat_layout.validation.results import difference, machine_for, public_functions, run_in_machine

__all__ = ["ValidationError", "check_equal", "validate"]

ROUNDS = 2
_FIRST_SIZE = 2


def validate(
    before: Any,
    after: Any,
    regions: Sequence[Region],
    program: Program,
    target: Target,
    seed: int = 0,
    built: Any = None,
) -> list[str]:
    """Notes on what could not be checked; :class:`ValidationError` where the results of the two modules differ.

    ``regions`` are those of ``program`` that ``after`` was made of; ``built``: its executable, where there is
    one. Both are built for ``target`` and run on its
    device; where this machine has none, nothing is checked, and a note says so.
    """
    notes: list[str] = []
    if target.device is None:
        return [f"validation: nothing was run, because this machine does not run {target.kind!r} code for {target.tvm}"]
    reference = _Reference(before, seed, notes, target)
    variants = [_Variant(after, "", None, built)]
    signatures = program.signatures
    if any(has_undef(r, signatures) for r in regions):
        for kind in POISONS:
            try:
                steps = [(r.graph, poisoned(r, signatures, kind)) for r in regions]
                module = target.place(emit_module(before, steps, signatures, evaluate))
            except EqsatError as error:
                notes.append(f"validation: undef padding could not be poisoned: {error}")
                break
            variants.append(_Variant(module, f" with poison ({kind}) in undef padding", kind))
    for variant in variants:
        difference = reference.difference(variant)
        if difference is not None:
            blame = Blame(before, regions, signatures, variant.poison, target)
            op = blame.first_difference(difference.case.function, difference.case.draw)
            raise ValidationError(difference.text + (f"; {op}" if op else "")) from difference.error
    return notes


def check_equal(before: Any, after: Any, target: Target | None = None) -> None:
    """Raises :class:`ValidationError` where the results of the two modules differ, run on this machine's CPU."""
    difference = _Reference(before, 0, [], target or target_of()).difference(_Variant(after, "", None))
    if difference is not None:
        raise ValidationError(difference.text) from difference.error


@dataclass(frozen=True)
class _Variant:
    module: Any
    what: str
    poison: str | None
    built: Any = None


@dataclass(frozen=True)
class _Case:
    """``exact``: which of the results are, as the input module computes them."""

    function: str
    draw: Draw
    inputs: list[Any]
    results: list[npt.NDArray[Any]]
    exact: list[bool]


@dataclass(frozen=True)
class _Difference:
    case: _Case
    text: str
    error: Exception | None = None


class _Reference:
    """What the input module gives, worked out once."""

    def __init__(self, mod: Any, seed: int, notes: list[str], target: Target):
        self._mod, self._notes, self._target = mod, notes, target
        self.cases: list[_Case] = []
        self._double = DoublePrecision(mod)
        kinds = [NORMAL] * ROUNDS + [WHOLE] + ([] if target.approx else [SPECIAL])
        try:
            machine = machine_for(mod, self._target)
        except (EqsatError, tvm.error.InternalError) as error:  # what TVM or our targets can't build
            notes.append(f"validation: the input module can't be built here: {last_of(error)}")
            return
        for name, function in sorted(public_functions(mod), key=lambda item: item[0]):
            for round_, kind in enumerate(kinds):
                self._run(machine, function, name, Draw(_FIRST_SIZE + round_, seed + round_, kind))

    def _run(self, machine: Any, function: Any, name: str, draw: Draw) -> None:
        reasons: list[str] = []
        for one in (draw, replace(draw, distinct=False)):
            try:
                inputs = one.inputs(function)
            except NoInputsError as error:
                reasons.append(str(error))
                continue
            exact = exact_results(self._mod, name, inputs) if draw.kind == WHOLE else []
            if draw.kind == WHOLE and not any(exact):
                return
            try:
                self.cases.append(_Case(name, one, inputs, run_in_machine(machine, name, inputs), exact))
                return
            except Exception as error:  # the user's program runs: sizes that do not fit, an assertion of its own
                reasons.append(last_of(error))
        note = f"validation: function {name!r} was not run: {reasons[0]}"
        self._notes += [note] if note not in self._notes else []

    def _is_rounding(self, case: _Case, number: int, got: npt.NDArray[Any], is_exact: bool) -> bool:
        if is_exact or case.draw.kind == SPECIAL:
            return False
        return self._double.explains(case.function, case.inputs, number, got)

    def difference(self, variant: _Variant) -> _Difference | None:
        """Where the variant gives something else."""
        if not self.cases:
            return None
        try:
            machine = machine_for(variant.module, self._target, variant.built)
        except Exception as error:  # whatever is raised, the input can be built
            text = f"the optimised module{variant.what} can't be built, but the input can: {last_of(error)}"
            raise ValidationError(text) from error
        for case in self.cases:
            try:
                found = run_in_machine(machine, case.function, case.inputs)
            except Exception as error:  # whatever it raises, the input did not
                text = f"{case.function}: fails{variant.what}, but the input does not: {last_of(error)}"
                return _Difference(case, text, error)
            exact = [False] * len(found)
            if case.exact:
                own = exact_results(variant.module, case.function, case.inputs)
                exact = [a and b for a, b in zip(case.exact, own, strict=True)]
            for i, (expected, got) in enumerate(zip(case.results, found, strict=True)):
                text = difference(expected, got, is_exact=exact[i])
                if text and not self._is_rounding(case, i, got, exact[i]):
                    return _Difference(case, f"{case.function}: result {i} {text}{variant.what}")
        return None
