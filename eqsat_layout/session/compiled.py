"""A session's model, read and compiled.

In: a source, a target, options. Out: the executable and its interface; the plan, when it is asked for.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from eqsat_layout.errors import TargetError
from eqsat_layout.planning.compile import compiled_with_notes
from eqsat_layout.planning.options import Options
from eqsat_layout.planning.pipeline import plan
from eqsat_layout.report.plan import Plan
from eqsat_layout.session.interface import Interface
from eqsat_layout.session.interface_functions import interface_of, with_interface
from eqsat_layout.session.known_file import without_sizes
from eqsat_layout.sources.program import Source
from eqsat_layout.sources.source import source_of
from eqsat_layout.system.tvm_lock import one_at_a_time
from eqsat_layout.targets.lowering import prepared
from eqsat_layout.targets.registry import target as target_of


class SessionModel:
    """What is to be run, and on what; it is read when that is needed first."""

    def __init__(self, source: Any, target: Any, options: Options) -> None:
        self._source, self._options = source, options
        self._target = target_of(target, approx=options.get("approx", True))

    @one_at_a_time
    def compiled(self) -> tuple[Any, Interface, list[str]]:
        """The executable, what it takes and gives, and what a person should know of it."""
        interface = interface_of(self._read, any_address=self._target.any_address, needs=self._target.needs)
        module = with_interface(self._read, interface)
        executable, notes = compiled_with_notes(module, self._target, without_sizes(self._options))
        return executable, interface, notes

    @one_at_a_time
    def plan(self) -> Plan:
        """What was chosen and why."""
        return plan(prepared(self._read.module, self._target), self._target, **without_sizes(self._options))

    @property
    def runs_here(self) -> bool:
        """On this machine."""
        return self._target.device is not None

    @property
    def device(self) -> tuple[int, int]:
        """DLPack's kind and number; :class:`TargetError` where nothing of this machine runs it."""
        device = self._target.device
        if device is None:
            raise TargetError(f"{self._target.name}: nothing here runs what was compiled for it; save() it")
        return int(device.dlpack_device_type()), int(device.index)

    @cached_property
    def _read(self) -> Source:
        return source_of(self._source, self._options.get("inputs"), self._options.get("shapes"))
