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
from eqsat_layout.egraph.rules import Command, is_own
from eqsat_layout.errors import EqsatError, ValidationError
from eqsat_layout.graph.emit import emit_module
from eqsat_layout.graph.frozen import DesiredLayouts
from eqsat_layout.graph.graph import Program
from eqsat_layout.planning.options import Options
from eqsat_layout.planning.search import Search, check_module, collector_paused, plan_regions, search_of
from eqsat_layout.planning.summary import Region, summarise
from eqsat_layout.report.plan import Plan
from eqsat_layout.targets import lower, normalize_target, prepare
from eqsat_layout.tuning.calibrate import known_costs

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
    checked = normalize_target(target, approx=options.get("approx", True))
    search = search_of(mod, checked, options, lambda program: machine_costs(program, checked), left_out)
    program, clock = search.program, search.clock
    regions = plan_regions(search)
    better = [r for r in regions if r.is_taken]
    with clock.stage("emit"):
        module = emit_module(mod, [(r.graph, r.steps) for r in better], program.signatures) if better else mod
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
    from eqsat_layout.validation.validate import validate

    try:
        search.program.notes += validate(mod, module, regions, search.program)
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


def machine_costs(program: Program, target: Any) -> CostModel:
    """The target's roofline, refined by what was measured on this machine if anything was."""
    known = Database().read()
    program.notes += known.notes
    return known_costs(target, program.signatures.values(), known)


def compile(mod: Any, target: Any = None, **options: Unpack[Options]) -> Any:
    """Prepares ``mod`` for inference, optimises its layouts, schedules and builds it for ``target``.

    Gives TVM's own executable, for ``relax.VirtualMachine``. Takes the same :class:`Options`.
    """
    checked = normalize_target(target, approx=options.get("approx", True))
    return lower(plan(prepare(mod), checked, **options).module, checked)


def OptimizeLayout(target: Any = None, **options: Unpack[Options]) -> Any:
    """:func:`optimize` as a ``tvm.ir.transform.Pass``, to put into a ``Sequential``; takes the same options."""

    @tvm.transform.module_pass(opt_level=0, name="OptimizeLayout")  # type: ignore[untyped-decorator]
    def transform(mod: Any, _context: Any) -> Any:
        return optimize(mod, target, **options)

    return transform


__all__ = ["DesiredLayouts", "OptimizeLayout", "Options", "compile", "optimize", "plan"]
