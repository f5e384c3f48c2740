"""What the build makes one kernel of in a plan, and what the plan costs so.

In: what was chosen for a module. Out: kernels, as the target joins them, by the steps of the plan. Planning adds up the
costs of ops, each as a part of one of TVM's groups; a target that makes one kernel of several groups says here what
that saves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from eqsat_layout.extract.region import Region
from eqsat_layout.graph.legalize import legalize
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fold_constants import fold_constants
from eqsat_layout.passes.marks import kernels_of, marked
from eqsat_layout.planning.choice import Choice
from eqsat_layout.system.turns import one_at_a_time


@dataclass(frozen=True)
class BuiltKernel:
    """The function that is called, what it carries out (the number of a region, and a store of its steps or a node of
    its graph), and the share of the time of these that one kernel saves."""

    name: str
    parts: tuple[tuple[int, int], ...]
    saved: float


@dataclass(frozen=True)
class Built:
    """The kernels of a choice; the target is asked when they are asked for."""

    choice: Choice

    @cached_property
    @one_at_a_time
    def kernels(self) -> tuple[BuiltKernel, ...]:
        """In the order in which they run."""
        notes = Notes()
        emitted, parts = self.choice.marked_module()
        plain, marks = marked(fold_constants(legalize(emitted), notes))
        numbers = {id(region.graph): number for number, region in enumerate(self.choice.regions)}
        known = {mark: parts[str(var.name)] for mark, var in marks.items() if str(var.name) in parts}
        return tuple(
            BuiltKernel(
                kernel.callee,
                tuple(dict.fromkeys((numbers[id(known[m][0])], known[m][1]) for m in kernel.marks if m in known)),
                kernel.saved,
            )
            for kernel in kernels_of(self.choice.search.target.kernels(plain, notes), plain)
        )

    def last_parts(self, region: Region) -> Mapping[int, int]:
        """By store of the steps of a region the last one of the same kernel."""
        number = next(i for i, one in enumerate(self.choice.regions) if one is region)
        own = [[store for one, store in kernel.parts if one == number] for kernel in self.kernels]
        return {store: stores[-1] for stores in own for store in stores}
