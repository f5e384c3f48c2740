"""What decides how fast a product is: its extents, its dtype, and how its operands lie.

In: numbers that a kernel's product has, or a plan's op under formats. Out: :class:`ProductShape`; products that are
alike in these are equally fast by the model.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProductShape:
    """``together``: bytes that one copy of the left and of the right operand moves; 0: elements are loaded one by one.

    ``elements``: of either operand that come from memory, each counted once: windows read most of theirs several times.
    ``result_bytes``: of an element. ``dtype``: of both operands.
    ``are_along_steps``: both operands lie together along the steps, as far as is known; ``are_rows``: both are rows of
    halves at even distances, which a tensor map can be of. ``is_known``: extents are none that are assumed.
    """

    dtype: str
    batch: int
    rows: int
    columns: int
    steps: int
    together: tuple[int, int]
    elements: tuple[int, int]
    result_bytes: int
    are_along_steps: bool = False
    are_rows: bool = False
    is_known: bool = True

    @property
    def results(self) -> int:
        """Elements."""
        return self.batch * self.rows * self.columns
