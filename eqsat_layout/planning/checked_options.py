"""Options checked before anything is done with them.

In: the options of a plan. Out: what they stand for, or an error that names the option.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from eqsat_layout.egraph.limits import Limits
from eqsat_layout.egraph.python_rules import PythonRule
from eqsat_layout.egraph.rules import text_of
from eqsat_layout.errors import EqsatError, RuleError, did_you_mean
from eqsat_layout.graph.graph import Program
from eqsat_layout.tir.symbol_names import symbol_name

TIME: Final = "time"
TRAFFIC: Final = "traffic"
COPIES: Final = "copies"
_OBJECTIVES: Final = (TIME, TRAFFIC, COPIES)
"""What plans are compared by."""


def check_rules(given: Any) -> list[Path | PythonRule]:
    """The files and rules of ``given``; :class:`RuleError` if these are none."""
    if given is None:
        return []
    if isinstance(given, str | bytes | os.PathLike) or not isinstance(given, Iterable):
        raise RuleError(f"rules must be a list of paths and of rules, got {given!r}")
    found = list(given)
    for one in found:
        if not isinstance(one, str | os.PathLike | PythonRule):
            raise RuleError(f"rules must be a list of paths and of rules, got {one!r} among them")
    return [one if isinstance(one, PythonRule) else Path(one) for one in found]


def check_rule_files(given: Any) -> None:
    """:class:`RuleError` if ``given`` are no rules, or a file of them can't be read."""
    for one in check_rules(given):
        if isinstance(one, Path):
            text_of(one)


def check_time_limit(given: Any) -> float | None:
    """Seconds, or None."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
        raise EqsatError(f"time_limit must be a number of seconds, got {given!r}")
    return float(given)


def check_objective(given: Any, cost_model: Any) -> str:
    """What plans are compared by; :data:`TIME` by default."""
    found = TIME if given is None else given
    if found not in _OBJECTIVES:
        raise EqsatError(f"objective must be {', '.join(map(repr, _OBJECTIVES[:-1]))} or {COPIES!r}, got {given!r}")
    if found != TIME and cost_model is not None:
        raise EqsatError(f"objective {found!r} is a cost model of the target's: give it or cost_model, not both")
    return str(found)


def check_limits(given: Any) -> Limits:
    """The limits, the default ones for None."""
    if given is not None and not isinstance(given, Limits):
        raise EqsatError(f"limits must be eqsat_layout.egraph.limits.Limits, got {given!r}")
    return given or Limits()


def check_assumed(given: Any, program: Program) -> dict[str, int]:
    """Sizes by the names of symbols of the program."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(
        isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in given.values()
    ):
        raise EqsatError(f"assume must be a dictionary from names of symbols to sizes, got {given!r}")
    known = sorted({name for graph in program.graphs for name in graph.symbols})
    for name in given:
        if symbol_name(str(name)) not in known:
            near = did_you_mean(str(name), known)
            raise EqsatError(f"assume: there is no symbol {name!r}; {near}there are {', '.join(known) or 'none'}")
    return {symbol_name(name): size for name, size in given.items()}


def unmet_desires(desired: Any, program: Program) -> Iterator[str]:
    """Notes on desired layouts of ops that the program does not have."""
    if not isinstance(desired, Mapping):
        return
    known = {name for s in program.signatures.values() for name in (s.name, s.rule_name)}
    known |= {node.label for graph in program.graphs for node in graph.nodes}
    for name in desired:
        if name not in known:
            near = did_you_mean(name, known)
            note = f"the desired layouts of {name!r} have nothing to be given to: no op that is read goes by this name"
            yield f"{note}; {near}".rstrip("; ")
