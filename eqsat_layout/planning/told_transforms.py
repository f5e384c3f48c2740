"""Layout rewrites as the report shows them.

In: rewrites of a region, and what their layouts are called. Out: :class:`~eqsat_layout.report.records.Transform`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eqsat_layout.cost.model import dtype_bytes
from eqsat_layout.extract.baseline import Rewrite
from eqsat_layout.extract.region import Region
from eqsat_layout.planning.plan_names import PlanNames
from eqsat_layout.report.records import Transform


class TransformReader:
    """Rewrites as the report shows them; each distinct one is worked out once."""

    def __init__(self, function: str, names: PlanNames):
        self._function, self._names = function, names
        self._known: dict[Any, Transform] = {}

    def __call__(self, rewrite: Rewrite) -> Transform:
        key = (rewrite.type, rewrite.before.key, rewrite.after.key)
        if key not in self._known:
            self._known[key] = self._read(rewrite)
        return replace(self._known[key], tensor=rewrite.name)

    def _read(self, rewrite: Rewrite) -> Transform:
        before, after = rewrite.before, rewrite.after
        inverse = before.index_map.inverse()
        index_map = after.index_map
        if inverse is not None and before.padded_shape == after.padded_shape:
            index_map = after.index_map.after(inverse) or index_map
        elif inverse is not None and after.index_map.is_identity:
            index_map = inverse
        elements = rewrite.before.elements() + rewrite.after.elements()
        return Transform(
            function=self._function,
            tensor=rewrite.name,
            index_map=index_map,
            shape=rewrite.type.shape,
            dtype=rewrite.type.dtype,
            bytes=int(elements * dtype_bytes(rewrite.type.dtype)),
            before=self._names.names(before),
            after=self._names.names(after),
        )


def label(region: Region, store: int) -> str:
    """What a person knows the tensor of a step by."""
    node = region.owners.get(store, -1)
    return region.graph.nodes[node].label if node >= 0 else "?"
