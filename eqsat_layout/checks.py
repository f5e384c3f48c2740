"""Options as a user may give them, checked before anything is done with them.

In: the options of a plan. Out: nothing, or an error that names the option.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from eqsat_layout.egraph.limits import Limits
from eqsat_layout.errors import EqsatError, RuleError
from eqsat_layout.graph.graph import Program


def check_rules(given: Any) -> list[Path]:
    """The paths of ``given``; :class:`RuleError` if these are none."""
    if given is None:
        return []
    if isinstance(given, str | bytes | os.PathLike) or not isinstance(given, Iterable):
        raise RuleError(f"rules must be a list of paths, got {given!r}")
    paths = list(given)
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            raise RuleError(f"rules must be a list of paths, got {path!r} among them")
    return list(map(Path, paths))


def check_time_limit(given: Any) -> float | None:
    """Seconds, or None."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
        raise EqsatError(f"time_limit must be a number of seconds, got {given!r}")
    return float(given)


def check_limits(given: Any) -> Limits:
    """The limits, the default ones for None."""
    if given is not None and not isinstance(given, Limits):
        raise EqsatError(f"limits must be eqsat_layout.egraph.limits.Limits, got {given!r}")
    return given or Limits()


def unmet_desires(desired: Any, program: Program) -> Iterator[str]:
    """Notes on desired layouts of ops that the program does not have."""
    if not isinstance(desired, Mapping):
        return
    known = {name for s in program.signatures.values() for name in (s.name, s.rule_name)}
    known |= {node.label for graph in program.graphs for node in graph.nodes}
    for name in desired:
        if name not in known:
            yield f"the desired layouts of {name!r} have nothing to be given to: no op that is read goes by this name"
