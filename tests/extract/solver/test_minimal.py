"""Masks that hold no earlier one."""

from __future__ import annotations

import random

import pytest

from eqsat_layout.extract.solver.minimal import minimal


def by_definition(masks: list[int]) -> list[int]:
    return [place for place, mask in enumerate(masks) if not any(earlier & ~mask == 0 for earlier in masks[:place])]


@pytest.mark.parametrize(("count", "bits"), [(0, 4), (1, 4), (30, 6), (300, 12), (300, 63), (300, 64), (200, 150)])
def test_masks_that_hold_no_earlier_one_are_kept(count: int, bits: int) -> None:
    choices = random.Random(count + bits)
    masks = [sum(1 << choices.randrange(bits) for _ in range(choices.randrange(1, 6))) for _ in range(count)]
    assert minimal(masks) == by_definition(masks)


def test_nothing_is_part_of_everything() -> None:
    assert minimal([5, 0, *range(1, 200)]) == [0, 1]
