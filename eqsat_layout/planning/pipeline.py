"""The whole way: import, saturate, extract, emit, compile.

In: a Relax IRModule. Out: an equivalent one that costs no more, or what it was where nothing is gained.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import tvm

from eqsat_layout.cost.database import Database
from eqsat_layout.cost.model import CostModel
from eqsat_layout.egraph.rules import Command
from eqsat_layout.egraph.saturate import is_own
from eqsat_layout.errors import EqsatError, ValidationError
from eqsat_layout.extract.region import Region
from eqsat_layout.graph.emit import emit_module
from eqsat_layout.graph.frozen import DesiredLayouts
from eqsat_layout.graph.graph import Program
from eqsat_layout.notes import Notes
from eqsat_layout.planning.options import Options
from eqsat_layout.planning.search import Search, check_module, collector_paused, plan_regions, search_of
from eqsat_layout.planning.summary import summarise
from eqsat_layout.report.plan import Plan
from eqsat_layout.targets.lowering import lower, prepared
from eqsat_layout.targets.protocol import Target
from eqsat_layout.targets.registry import target as target_of
from eqsat_layout.validation.validate import validate

_REWRITES = re.compile(r"\(\s*(rule|rewrite|birewrite|union)\b")


def optimize(mod: Any, target: Any = None, **options: Unpack[Options]) -> Any:
    """An IRModule equivalent to ``mod`` whose layouts are chosen globally; ``mod`` itself where nothing is gained.

    ``target`` is what TVM takes, default this machine; :class:`Options` says what else can be given. ``mod`` is never
    changed. Raises :class:`~eqsat_layout.errors.EqsatError` for a malformed module, rule file, layout, flow, candidate
    or target.
    """
    return plan(mod, target, **options).module


def plan(mod: Any, target: Any = None, **options: Unpack[Options]) -> Plan:
    """As :func:`optimize`, with everything known about the choice: costs, bound, what stays and what it took."""
    with collector_paused():
        return _plan(mod, target, options)


def _plan(mod: Any, target: Any, options: Options, left_out: frozenset[Command] = frozenset()) -> Plan:
    """The plan that the rules without those ``left_out`` give."""
    check_module(mod)
    own = target_of(target, approx=options.get("approx", True))
    search = search_of(mod, own, options, lambda program: machine_costs(program, own), left_out)
    program, clock = search.program, search.clock
    regions = plan_regions(search)
    better = [r for r in regions if r.is_taken]
    with clock.stage("emit"):
        chosen = [(r.graph, r.steps) for r in better]
        module = own.place(emit_module(mod, chosen, program.signatures)) if better else mod
    if better and (options.get("validate") or options.get("fallback")):
        with clock.stage("validate"):
            try:
                _validate(mod, module, better, search, partial(_plan, mod, target, options), left_out)
            except ValidationError as error:
                if left_out or not options.get("fallback"):
                    raise
                program.notes.append(f"the module is unchanged, because validation failed: {error}")
                module, regions = mod, list(map(_kept, regions))
    return summarise(module, regions, program, search.costs, clock.seconds)


def _validate(
    mod: Any,
    module: Any,
    regions: Sequence[Region],
    search: Search,
    plan_without: Callable[[frozenset[Command]], Any],
    left_out: frozenset[Command],
) -> None:
    """:class:`ValidationError` if ``module`` is wrong, with the rule of the user's that makes it so."""
    try:
        search.program.notes += validate(mod, module, regions, search.program, search.target)
    except ValidationError as error:
        rules = [c for c in search.commands if not is_own(c) and _REWRITES.match(c.text)]
        rule = None if left_out else _guilty(rules, plan_without)
        if rule is None:
            raise
        raise ValidationError(f"{error}; it is right without the rule of {rule.file}:{rule.line}") from error


def _guilty(rules: Sequence[Command], plan_without: Callable[[frozenset[Command]], Any]) -> Command | None:
    """The last of the fewest rules, in their order, that make a plan wrong; None if it is wrong without any."""

    def is_wrong(count: int) -> bool:
        try:
            plan_without(frozenset(rules[count:]))
        except ValidationError:
            return True
        except EqsatError:
            return False
        return False

    low, high = -1, len(rules)  # with `low` rules it is right, with `high` it is wrong
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_wrong(middle) else (middle, high)
    return rules[high - 1] if high else None


def _kept(region: Region) -> Region:
    """The region as it was, whatever was planned for it."""
    return replace(region, annotated=False, solution=replace(region.solution, cost=math.inf))


def machine_costs(program: Program, target: Target) -> CostModel:
    """The target's costs with what was measured on the machine, if anything was."""
    known = Database().read()
    program.notes += known.notes
    return target.costs(known, program.signatures.values())


def compile(mod: Any, target: Any = None, **options: Unpack[Options]) -> Any:
    """Prepares ``mod`` for inference, optimises its layouts, schedules and builds it for ``target``.

    Gives TVM's own executable, for ``relax.VirtualMachine``. Takes the same :class:`Options`; what could not be done is
    logged under ``eqsat_layout``, and added to ``notes=`` where a list is given.
    """
    notes = Notes()
    own = target_of(target, approx=options.get("approx", True))
    check_module(mod)
    found = plan(prepared(mod, own, notes=notes), own, **options)
    executable = lower(found.module, own, notes=notes)
    asked = options.get("notes")
    if asked is not None:
        asked += [*found.notes, *notes]
    return executable


def OptimizeLayout(target: Any = None, **options: Unpack[Options]) -> Any:
    """:func:`optimize` as a ``tvm.ir.transform.Pass``, to put into a ``Sequential``; takes the same options."""

    @tvm.transform.module_pass(opt_level=0, name="OptimizeLayout")  # type: ignore[untyped-decorator]
    def transform(mod: Any, _context: Any) -> Any:
        return optimize(mod, target, **options)

    return transform


__all__ = ["DesiredLayouts", "OptimizeLayout", "Options", "compile", "optimize", "plan"]
