"""A program that was not compiled before: prepared, planned, written down as TIR from the chosen steps, built.

In: a module, a target and options. Out: TVM's executable; notes say what could not be done.
"""

from __future__ import annotations

from typing import Any

from eqsat_layout.errors import TargetError
from eqsat_layout.graph.public_names import check_public_names
from eqsat_layout.graph.well_formed import well_formed
from eqsat_layout.notes import Notes
from eqsat_layout.planning.options import Options
from eqsat_layout.planning.pipeline import choose
from eqsat_layout.targets.lowering import lower, prepared
from eqsat_layout.targets.protocol import Target


def compile_anew(mod: Any, target: Target, options: Options, notes: Notes) -> Any:
    """See :func:`eqsat_layout.planning.compile.compile`."""
    mod = well_formed(mod)
    check_public_names(mod)
    if why := target.why_not_called(mod):
        raise TargetError(why)
    plain = prepared(mod, target, notes=notes)
    choice = choose(plain, target, options, build=lambda module: lower(module, target, notes=notes))
    executable = choice.executable
    for note in (*choice.search.program.notes, *(n for region in choice.regions for n in region.saturated.notes)):
        notes.add(note)
    return executable
