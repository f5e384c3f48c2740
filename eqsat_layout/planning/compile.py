"""From a model to an executable.

In: a model in any form (:mod:`eqsat_layout.sources`), a target and options. Out: TVM's executable, from disk where
the same was compiled before.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

from eqsat_layout.notes import Notes
from eqsat_layout.planning.options import Options, with_options_in_help
from eqsat_layout.planning.programs import KnownPrograms
from eqsat_layout.planning.source_module import as_module
from eqsat_layout.system.collector import collector_paused
from eqsat_layout.system.store import ArtefactStore
from eqsat_layout.system.tvm_lock import one_at_a_time
from eqsat_layout.system.workers import workers
from eqsat_layout.targets.registry import target as target_of
from eqsat_layout.targets.version import source_digest


@with_options_in_help
def compile(source: Any, target: Any = None, **options: Unpack[Options]) -> Any:
    """Prepares a model for inference, optimises its layouts, schedules and builds it for ``target``.

    ``source`` and options are those of ``optimize``. Gives TVM's own executable, for ``relax.VirtualMachine``; what
    could not be done is logged under ``eqsat_layout``, and added to ``notes=`` where a list is given. What was compiled
    before comes from disk (:mod:`eqsat_layout.planning.programs`).
    """
    return compiled_with_notes(source, target, options)[0]


@one_at_a_time
def compiled_with_notes(source: Any, target: Any, options: Options) -> tuple[Any, list[str]]:
    """The same, and what a person should know of it."""
    own = target_of(target, approx=options.get("approx", True))  # before a model is read, which can take long
    mod, options = as_module(source, options)
    notes = Notes()
    with collector_paused():
        programs = KnownPrograms(own, ArtefactStore.usual())
        key = programs.key(mod, options)
        executable = programs.get(key, notes)
        if executable is None:
            from eqsat_layout.passes.evaluate import be_ready

            # to start takes them a second, and the next line half of one; one works out the version, which is stored
            workers().start(be_ready, partial(source_digest, own.code))
            from eqsat_layout.planning.compile_anew import compile_anew

            executable = compile_anew(mod, own, options, notes)
            programs.keep(key, executable, list(notes))
    asked = options.get("notes")
    if asked is not None:
        asked += notes
    return executable, list(notes)
