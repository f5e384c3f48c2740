"""Layout optimisation of TVM Relax programs with equality saturation. These names are the public API.

They are imported on first use, so ``import eqsat_layout`` itself costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from eqsat_layout.system.collector import collector_paused
from eqsat_layout.system.forks import in_one_piece
from eqsat_layout.system.without_torch import without_torch

if TYPE_CHECKING:
    from eqsat_layout.egraph.limits import Limits
    from eqsat_layout.egraph.patterns import op
    from eqsat_layout.egraph.python_rules import rule
    from eqsat_layout.errors import EqsatError, ValidationError
    from eqsat_layout.planning.compile import compile
    from eqsat_layout.planning.options import Options
    from eqsat_layout.planning.pipeline import OptimizeLayout, optimize, plan
    from eqsat_layout.planning.transform import transform_layout
    from eqsat_layout.report.plan import Plan
    from eqsat_layout.session.session import Session
    from eqsat_layout.tuning.remote import Remote
    from eqsat_layout.tuning.tune import TuneReport, tune

__all__ = [
    "EqsatError",
    "Limits",
    "OptimizeLayout",
    "Options",
    "Plan",
    "Remote",
    "Session",
    "TuneReport",
    "ValidationError",
    "compile",
    "op",
    "optimize",
    "plan",
    "rule",
    "transform_layout",
    "tune",
]

_HOMES = {
    "EqsatError": "errors",
    "Limits": "egraph.limits",
    "Options": "planning.options",
    "Plan": "report.plan",
    "Remote": "tuning.remote",
    "Session": "session.session",
    "TuneReport": "tuning.tune",
    "ValidationError": "errors",
    "compile": "planning.compile",
    "op": "egraph.patterns",
    "rule": "egraph.python_rules",
    "transform_layout": "planning.transform",
    "tune": "tuning.tune",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with without_torch(), in_one_piece(), collector_paused(all_stays=True):
        home = importlib.import_module(f"{__name__}.{_HOMES.get(name, 'planning.pipeline')}")
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
