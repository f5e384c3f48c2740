"""What is known of a plan, without what prints it.

In: the chosen module with its costs, the layout transforms that stay, and statistics. Out: :class:`PlanRecord`, which
is what tables are made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from eqsat_layout.report.records import KernelRecord, Refusal, Stats, Transform

if TYPE_CHECKING:
    from eqsat_layout.report.changes import Change

OPTIMAL_GAP: Final = 1e-6
"""A plan whose gap is at most this is called optimal: below it lies the rounding of the solver."""
_ROUNDING: Final = 1e-10
"""Costs that differ by less, relatively, were added up in another order."""


@dataclass(frozen=True)
class PlanRecord:
    """The chosen module and what is known of it. Costs are modelled seconds of one run; ``lower_bound`` is proven.

    ``written_cost`` is that of the program as it was written, where layouts were asked for: ``input_cost`` is that of
    these layouts with a transform wherever they meet others. ``ops`` are the names of what was planned. ``notes`` say
    what the user should know: layouts that could not be had, limits that were hit.
    """

    make_module: Callable[[], Any] = field(repr=False, compare=False)
    cost: float
    input_cost: float
    lower_bound: float
    transforms: tuple[Transform, ...]
    input_transforms: tuple[Transform, ...]
    stats: Stats
    notes: tuple[str, ...]
    changed: bool
    refusals: Callable[[], tuple[Refusal, ...]] = field(default=tuple, repr=False, compare=False)
    written_cost: float | None = None
    ops: tuple[str, ...] = ()
    told_changes: Callable[[], tuple[Change, ...]] = field(default=tuple, repr=False, compare=False)
    told_kernels: Callable[[], tuple[KernelRecord, ...]] = field(default=tuple, repr=False, compare=False)

    @cached_property
    def module(self) -> Any:
        """The chosen module, written down when it is asked for first; the input itself where ``changed`` is false."""
        return self.make_module()

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """What is run in another layout or by another algorithm, in rows of equal ops, the largest savings first."""
        return self.told_changes()

    @cached_property
    def kernels(self) -> tuple[KernelRecord, ...]:
        """What the build makes one kernel of, in the order in which the program runs them. The target is asked when
        they are asked for: it joins kernels for that as it does for a build, which takes about as long as planning."""
        return self.told_kernels()

    @property
    def built_cost(self) -> float:
        """:attr:`cost`, less what the build saves by making one kernel of several that the plan counts one by one."""
        return self.cost - sum(kernel.saved for kernel in self.kernels)

    @property
    def gap(self) -> float:
        """How far above the lower bound the cost may be, relative to the cost; 0 for an optimal plan."""
        gap = (self.cost - self.lower_bound) / self.cost if self.cost > 0 else 0.0
        return gap if gap > _ROUNDING else 0.0

    @property
    def speedup(self) -> float:
        """Modelled cost of the input over that of the plan; 1 where nothing is gained."""
        if self.cost > 0:
            return self.input_cost / self.cost
        return math.inf if self.input_cost > 0 else 1.0

    @property
    def is_optimal(self) -> bool:
        """No cheaper plan exists in the explored space, under the cost model."""
        return self.gap <= OPTIMAL_GAP

    def to_dict(self) -> dict[str, Any]:
        """Everything but the module as plain data that JSON can hold: seconds, bytes, text."""
        return {
            "changed": self.changed,
            "cost_s": self.cost,
            "input_cost_s": self.input_cost,
            "written_cost_s": self.written_cost,
            "lower_bound_s": self.lower_bound,
            "gap": self.gap,
            "is_optimal": self.is_optimal,
            "transforms": [_transform_dict(t) for t in self.transforms],
            "input_transforms": [_transform_dict(t) for t in self.input_transforms],
            "stats": {
                "ops": self.stats.ops,
                "e_nodes": self.stats.e_nodes,
                "constant_bytes": self.stats.constant_bytes,
                "input_constant_bytes": self.stats.input_constant_bytes,
                "e_classes": self.stats.e_classes,
                "rounds": self.stats.rounds,
                "seconds": dict(self.stats.seconds),
            },
            "notes": list(self.notes),
        }


def _transform_dict(transform: Transform) -> dict[str, Any]:
    return {
        "function": transform.function,
        "tensor": transform.tensor,
        "index_map": str(transform.index_map),
        "before": transform.before,
        "after": transform.after,
        "shape": list(transform.shape),
        "dtype": transform.dtype,
        "bytes": transform.bytes,
    }
