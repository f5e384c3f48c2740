"""Planning: import, saturate, extract, and emit what is chosen.

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
from eqsat_layout.egraph.rules import Command, is_own
from eqsat_layout.errors import EqsatError, ValidationError
from eqsat_layout.extract.region import Region
from eqsat_layout.graph.well_formed import well_formed
from eqsat_layout.planning.choice import Choice
from eqsat_layout.planning.joined_layouts import with_joins
from eqsat_layout.planning.options import Options, with_options_in_help
from eqsat_layout.planning.search import plan_regions, search_of
from eqsat_layout.planning.source_module import as_module
from eqsat_layout.planning.summary import summarise
from eqsat_layout.report.plan import Plan
from eqsat_layout.system.collector import collector_paused
from eqsat_layout.system.tvm_lock import one_at_a_time
from eqsat_layout.targets.protocol import Target
from eqsat_layout.targets.registry import target as target_of

_NOTHING_PLANNED = [True]
"""Until the first plan of a process: much of what it makes is kept for all that follow."""

_REWRITES = re.compile(r"\(\s*(rule|rewrite|birewrite|union)\b")


@with_options_in_help
def optimize(source: Any, target: Any = None, **options: Unpack[Options]) -> Any:
    """An IRModule equivalent to ``source`` whose layouts are chosen globally; the same one where nothing is gained.

    ``source`` is an IRModule, which is never changed, a path (``.onnx``, ``.pt2``, ``.py``, ``.json``), an ONNX
    ``ModelProto``, a torch ``ExportedProgram``, or an ``nn.Module`` with example ``inputs``. ``target`` is what TVM
    takes, default this machine. Raises :class:`~eqsat_layout.errors.EqsatError` for a malformed module, rule file,
    layout, flow, candidate or target. The module is fast when ``eqsat_layout.compile`` builds it: ``tvm.compile`` has
    no schedules for it.
    """
    return plan(source, target, **options).module


@with_options_in_help
def plan(source: Any, target: Any = None, **options: Unpack[Options]) -> Plan:
    """As :func:`optimize`, with everything known about the choice: costs, bound, what stays and what it took.

    The module is written down when it is asked for.
    """
    own = target_of(target, approx=options.get("approx", True))  # before a model is read, which can take long
    mod, options = as_module(source, options)
    with collector_paused(all_stays=bool(_NOTHING_PLANNED) and _NOTHING_PLANNED.pop()):
        choice = choose(mod, own, options)
    found = summarise(choice)
    asked = options.get("notes")
    if asked is not None:
        asked += found.notes
    return found


@one_at_a_time
def choose(
    mod: Any,
    target: Target,
    options: Options,
    left_out: frozenset[Command] = frozenset(),
    build: Callable[[Any], Any] | None = None,
) -> Choice:
    """The best plan of every region that the rules without those ``left_out`` give, validated if that is asked for.

    ``build``: what the chosen module is built with anyway; then that is what is validated.
    """
    mod = well_formed(mod)
    search = search_of(mod, target, options, Database().read(), left_out)
    choice = with_joins(Choice(mod, mod.clone(), search, plan_regions(search), build))
    if choice.taken and (options.get("validate") or options.get("fallback")):
        with search.clock.stage("validate"):
            try:
                _validate(choice, partial(choose, mod, target, options), left_out)
            except ValidationError as error:
                if left_out or not options.get("fallback"):
                    raise
                search.program.notes.append(f"the module is unchanged, because validation failed: {error}")
                choice = replace(choice, regions=list(map(_kept, choice.regions)))
    return choice


def _validate(
    choice: Choice, choose_without: Callable[[frozenset[Command]], Any], left_out: frozenset[Command]
) -> None:
    """:class:`ValidationError` if what is chosen is wrong, with the rule of the user's that makes it so."""
    from eqsat_layout.validation.validate import validate  # a quarter of all imports, for who asks for it

    search = choice.search
    try:
        is_built = choice.build is not None and search.target.device is not None
        module, built = (choice.tir_module, choice.executable) if is_built else (choice.module, None)
        search.program.notes += validate(choice.mod, module, choice.taken, search.program, search.target, built=built)
    except ValidationError as error:
        rules = [c for c in search.commands if not is_own(c) and _REWRITES.match(c.text)]
        rule = None if left_out else _guilty(rules, choose_without)
        if rule is None:
            raise
        raise ValidationError(f"{error}; it is right without the rule of {rule.file}:{rule.line}") from error


def _guilty(rules: Sequence[Command], choose_without: Callable[[frozenset[Command]], Any]) -> Command | None:
    """The last of the fewest rules, in their order, that make a plan wrong; None if it is wrong without any."""

    def is_wrong(count: int) -> bool:
        try:
            choose_without(frozenset(rules[count:]))
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
    return replace(region, annotated=False, is_joined=False, solution=replace(region.solution, cost=math.inf))


def OptimizeLayout(target: Any = None, **options: Unpack[Options]) -> Any:
    """:func:`optimize` as a ``tvm.ir.transform.Pass``, to put into a ``Sequential``; takes the same options."""

    @tvm.transform.module_pass(opt_level=0, name="OptimizeLayout")  # type: ignore[untyped-decorator]
    def transform(mod: Any, _context: Any) -> Any:
        return optimize(mod, target, **options)

    return transform


__all__ = ["OptimizeLayout", "Options", "choose", "optimize", "plan"]
