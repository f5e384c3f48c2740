"""Targets of other packages, made with care.

In: the kind that a user asks for and the function that makes its target. Out: a target that has what every step asks
for, or :class:`~eqsat_layout.errors.TargetError` with the kind and what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from typing import Any

from eqsat_layout.errors import EqsatError, TargetError
from eqsat_layout.maps import GLOBAL, Memory
from eqsat_layout.notes import first_line
from eqsat_layout.targets.protocol import Target

Factory = Callable[[Any, bool], Target]
"""From what the user gives (a string, a dict or a ``tvm.target.Target`` of the factory's kind) and ``approx``."""


def checked_factory(kind: str, factory: Factory) -> Factory:
    """``factory``, whose faults and answers are told by its kind."""

    def make(given: Any, approx: bool) -> Target:
        try:
            made: Any = factory(given, approx)
            reason = _why_no_target(made)
        except EqsatError:
            raise
        except Exception as error:  # code of another package
            raise TargetError(f"target {kind!r} can't be made: {first_line(error)}") from error
        if reason is not None:
            raise TargetError(f"target {kind!r}: {reason}")
        return made  # type: ignore[no-any-return]

    return make


def factory_of(entry: EntryPoint) -> Factory:
    """The factory that an installed package names, which is imported when it is asked for."""

    def make(given: Any, approx: bool) -> Target:
        try:
            factory = entry.load()
        except Exception as error:  # code of another package
            package = f" of package {entry.dist.name!r}" if entry.dist else ""
            raise TargetError(f"target {entry.name!r}{package}: {entry.value}: {first_line(error)}") from error
        return checked_factory(entry.name, factory)(given, approx)

    return make


def _why_no_target(made: Any) -> str | None:
    """Why what a factory made is no target that can be asked, in words; ``None`` if it is one."""
    if not isinstance(made, Target):
        return f"its factory gave {made!r}, which is no eqsat_layout.targets.protocol.Target"
    who = type(made).__name__
    if not isinstance(getattr(made, "kind", None), str):
        return f"{who} does not say its kind"
    memories: Any = made.memories
    if not isinstance(memories, Mapping) or GLOBAL not in memories:
        return f"{who}.memories is no mapping that has {GLOBAL!r}: {memories!r}"
    for scope, memory in memories.items():
        if not isinstance(memory, Memory) or memory.scope != scope:
            return f"{who}.memories has under {scope!r} no Memory of that scope: {memory!r}"
    return None
