"""What was chosen for a module, before it is written down.

In: a module, how it was searched, its planned regions. Out: the module with the chosen plan, as Relax for people and
for other passes, or as TIR for a build.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from eqsat_layout.extract.region import Region
from eqsat_layout.graph.graph import Graph
from eqsat_layout.planning.search import Search
from eqsat_layout.system.tvm_lock import one_at_a_time

if TYPE_CHECKING:
    from eqsat_layout.planning.built import Built, Marked

_READ: Final = 4096
"""Elements of the largest constants that decide what becomes one kernel: numbers, and matrices with zeros."""


@dataclass(frozen=True)
class Choice:
    """``mod`` with the best plan of each of its ``regions``; ``snapshot``: what it held when it was planned;
    ``build``: what makes an executable of a module, where one is wanted."""

    mod: Any
    snapshot: Any
    search: Search
    regions: Sequence[Region]
    build: Callable[[Any], Any] | None = None

    @property
    def taken(self) -> list[Region]:
        """The regions that are better than they were."""
        return [region for region in self.regions if region.is_taken]

    @cached_property
    def module(self) -> Any:
        """The module, with Relax ops where they say what is chosen; ``mod`` itself where nothing is taken."""
        with self.search.clock.stage("emit"):
            return self._placed(self._emitted(as_tir=False))

    @cached_property
    def executable(self) -> Any:
        """The TIR module built."""
        assert self.build is not None
        return self.build(self.tir_module)

    @cached_property
    def tir_module(self) -> Any:
        """The module with a ``call_tir`` for every op whose TIR is known."""
        with self.search.clock.stage("emit"):
            return self._placed(self._emitted(as_tir=True))

    @cached_property
    def built(self) -> Built:
        """What the build makes one kernel of."""
        from eqsat_layout.planning.built import Built  # passes of a build, which planning does without

        search, marked_module = self.search, replace(self)._marked_module  # in a circle e-graphs are not freed at once
        return Built(self.regions, search.program.signatures, search.costs, search.target, marked_module)

    def _marked_module(self) -> Marked:
        from eqsat_layout.passes.marks import marked  # a pass of the build

        nodes = {
            node.var: (region.graph, i)
            for region in self.regions
            if not region.is_taken
            for i, node in enumerate(region.graph.nodes)
            if node.var is not None
        }
        stores: dict[Any, tuple[Graph, int]] = {}
        emitted, marks = marked(self._emitted(as_tir=True, bound=stores, read=_READ))
        known = nodes | stores
        return self._placed(emitted), {mark: known[var] for mark, var in marks.items() if var in known}

    @one_at_a_time
    def _emitted(self, as_tir: bool, bound: dict[Any, tuple[Graph, int]] | None = None, read: int | None = None) -> Any:
        if not self.taken:
            return self.mod
        from eqsat_layout.graph.emit import emit_module  # planning itself writes nothing down
        from eqsat_layout.passes.evaluate import evaluate

        steps = [(region.graph, region.steps) for region in self.taken]
        signatures = self.search.program.signatures
        return emit_module(self.snapshot, steps, signatures, evaluate, as_tir=as_tir, bound=bound, read=read)

    @one_at_a_time
    def _placed(self, mod: Any) -> Any:
        return self.search.target.place(mod) if self.taken else mod
