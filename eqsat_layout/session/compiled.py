"""A session's model, compiled.

In: a source, a target, options. Out: the executable and its interface; the plan, when it is asked for.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from eqsat_layout.errors import TargetError
from eqsat_layout.planning.options import Options
from eqsat_layout.session.interface import Interface
from eqsat_layout.session.known_file import KnownFile, without_sizes
from eqsat_layout.session.library import told_by
from eqsat_layout.targets.registry import target as target_of

if TYPE_CHECKING:  # readers and planning take as long to import as what was compiled before takes to open
    from eqsat_layout.report.plan import Plan
    from eqsat_layout.sources.program import Source


class CompiledModel:
    """``executable`` and ``interface`` of a model."""

    def __init__(self, source: Any, target: Any, options: Options) -> None:
        self._source, self._options = source, options
        self._target = target_of(target, approx=options.get("approx", True))
        known = KnownFile.of(source, self._target, options)
        self.executable = None if known is None else known.executable()
        if self.executable is not None:
            self.interface: Interface = told_by(self.executable)
            return
        from eqsat_layout.planning.compile import compiled_and_key
        from eqsat_layout.session.telling import interface_of, telling

        self.interface = interface_of(self._read, any_address=self._target.any_address, needs=self._target.needs)
        module = telling(self._read, self.interface)
        self.executable, key = compiled_and_key(module, self._target, without_sizes(options))
        if known is not None:
            known.keep(key)

    @property
    def device(self) -> tuple[int, int]:
        """DLPack's kind and number; :class:`TargetError` where nothing of this machine runs it."""
        device = self._target.device
        if device is None:
            raise TargetError(f"{self._target.name}: nothing here runs what was compiled for it; save() it")
        return int(device.dlpack_device_type()), int(device.index)

    def plan(self) -> Plan:
        """What was chosen and why."""
        from eqsat_layout.planning.pipeline import plan
        from eqsat_layout.targets.lowering import prepared

        return plan(prepared(self._read.module), self._target, **without_sizes(self._options))

    @cached_property
    def _read(self) -> Source:
        """The model."""
        from eqsat_layout.sources.source import source_of

        return source_of(self._source, self._options.get("inputs"), self._options.get("shapes"))
