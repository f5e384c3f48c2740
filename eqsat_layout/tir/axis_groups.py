"""Groups of physical axes of a PrimFunc's parameters, for memory that is addressed by several indices.

In: a PrimFunc and where the groups of its buffers start. Out: the PrimFunc that says so in an attribute, which targets
with such memory read; TVM 0.27 has no place for it in a buffer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

AXIS_GROUPS: Final = "eqsat_layout.axis_groups"
"""The attribute: from the number of a parameter, as text, to the positions where a new group of its axes starts."""


def axis_groups(func: Any) -> dict[Any, tuple[int, ...]]:
    """Where the groups of each parameter start; flat parameters are left out."""
    said = func.attrs.get(AXIS_GROUPS) if func.attrs is not None else None
    if said is None:
        return {}
    return {func.params[int(number)]: tuple(map(int, positions)) for number, positions in said.items()}


def with_axis_groups(func: Any, groups: Mapping[int, Sequence[int]]) -> Any:
    """``func`` with these groups, by the number of the parameter, in place of those that it had."""
    said = {str(number): list(positions) for number, positions in sorted(groups.items()) if positions}
    if said:
        return func.with_attr(AXIS_GROUPS, said)
    has_some = func.attrs is not None and func.attrs.get(AXIS_GROUPS) is not None
    return func.without_attr(AXIS_GROUPS) if has_some else func
