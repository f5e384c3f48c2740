"""From a model to an executable.

In: a Relax IRModule as a frontend gives it, a target and options. Out: TVM's executable, from disk where the same
was compiled before.
"""

from __future__ import annotations

from typing import Any, Unpack

from eqsat_layout.notes import Notes
from eqsat_layout.planning.options import Options
from eqsat_layout.planning.programs import KnownPrograms
from eqsat_layout.system.store import Store
from eqsat_layout.system.turns import one_at_a_time
from eqsat_layout.targets.registry import target as target_of


@one_at_a_time
def compile(mod: Any, target: Any = None, **options: Unpack[Options]) -> Any:
    """Prepares ``mod`` for inference, optimises its layouts, schedules and builds it for ``target``.

    Gives TVM's own executable, for ``relax.VirtualMachine``. Takes the same :class:`Options` as ``optimize``; what
    could not be done is logged under ``eqsat_layout``, and added to ``notes=`` where a list is given. What was compiled
    before comes from disk (:mod:`eqsat_layout.planning.programs`).
    """
    notes = Notes()
    own = target_of(target, approx=options.get("approx", True))
    programs = KnownPrograms(own, Store.usual())
    key = programs.key(mod, options)
    executable = programs.get(key, notes)
    if executable is None:
        from eqsat_layout.planning.compile_anew import compile_anew  # planning takes half a second to import

        executable = compile_anew(mod, own, options, notes)
        programs.keep(key, executable, list(notes))
    asked = options.get("notes")
    if asked is not None:
        asked += notes
    return executable
