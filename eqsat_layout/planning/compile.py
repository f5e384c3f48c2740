"""From a model to an executable.

In: a Relax IRModule as a frontend gives it, a target and options. Out: TVM's executable. Prepared, planned, written
down as TIR straight from the chosen steps, built.
"""

from __future__ import annotations

from typing import Any, Unpack

from eqsat_layout.notes import Notes
from eqsat_layout.planning.options import Options
from eqsat_layout.planning.pipeline import choose
from eqsat_layout.planning.programs import KnownPrograms
from eqsat_layout.planning.search import check_module, collector_paused
from eqsat_layout.system.store import Store
from eqsat_layout.system.workers import workers
from eqsat_layout.targets.lowering import lower, prepared
from eqsat_layout.targets.protocol import Target
from eqsat_layout.targets.registry import target as target_of


def compile(mod: Any, target: Any = None, **options: Unpack[Options]) -> Any:
    """Prepares ``mod`` for inference, optimises its layouts, schedules and builds it for ``target``.

    Gives TVM's own executable, for ``relax.VirtualMachine``. Takes the same :class:`Options` as ``optimize``; what
    could not be done is logged under ``eqsat_layout``, and added to ``notes=`` where a list is given. What was compiled
    before comes from disk (:mod:`eqsat_layout.planning.programs`).
    """
    notes = Notes()
    own = target_of(target, approx=options.get("approx", True))
    check_module(mod)
    programs = KnownPrograms(own, Store.usual())
    key = programs.key(mod, options)
    executable = programs.get(key, notes)
    if executable is None:
        executable = _compiled(mod, own, options, notes)
        programs.keep(key, executable, list(notes))
    asked = options.get("notes")
    if asked is not None:
        asked += notes
    return executable


def _compiled(mod: Any, target: Target, options: Options, notes: Notes) -> Any:
    workers().start(_imported)
    plain = prepared(mod, notes=notes)
    with collector_paused():
        choice = choose(plain, target, options)
        module = choice.tir_module()
    for note in (*choice.search.program.notes, *(n for region in choice.regions for n in region.saturated.notes)):
        notes.add(note)
    return lower(module, target, notes=notes)


def _imported() -> None:
    """For a process that will compute constants and make kernels: what it needs is imported by then."""
