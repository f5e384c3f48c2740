"""From a model to an executable.

In: a Relax IRModule as a frontend gives it, a target and options. Out: TVM's executable. Prepared, planned, written
down as TIR straight from the chosen steps, built.
"""

from __future__ import annotations

from typing import Any, Unpack

from eqsat_layout.notes import Notes
from eqsat_layout.planning.options import Options
from eqsat_layout.planning.pipeline import choose
from eqsat_layout.planning.search import check_module, collector_paused
from eqsat_layout.targets.lowering import lower, prepared
from eqsat_layout.targets.registry import target as target_of


def compile(mod: Any, target: Any = None, **options: Unpack[Options]) -> Any:
    """Prepares ``mod`` for inference, optimises its layouts, schedules and builds it for ``target``.

    Gives TVM's own executable, for ``relax.VirtualMachine``. Takes the same :class:`Options` as ``optimize``; what
    could not be done is logged under ``eqsat_layout``, and added to ``notes=`` where a list is given.
    """
    notes = Notes()
    own = target_of(target, approx=options.get("approx", True))
    check_module(mod)
    plain = prepared(mod, own, notes=notes)
    with collector_paused():
        choice = choose(plain, own, options)
        module = choice.tir_module()
    executable = lower(module, own, notes=notes)
    asked = options.get("notes")
    if asked is not None:
        said = [*choice.search.program.notes, *(note for region in choice.regions for note in region.saturated.notes)]
        asked += dict.fromkeys([*said, *notes])
    return executable
