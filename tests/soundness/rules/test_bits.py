"""Elements of random tensors: what meets in them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from eqsat_layout.soundness.rules.bits import THEMES, WORLDS, RandomElements, specials


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool"])
def test_tensors_of_a_model_share_two_special_numbers_in_some_worlds(dtype: str) -> None:
    """Each had special numbers of its own: zeros of both signs, or infinities, met in few models."""
    for seed in range(5):
        elements = RandomElements(seed)
        tensors = [elements.tensor((4, 8), dtype) for _ in range(3)]
        assert all(tensor.shape == (WORLDS, 4, 8) for tensor in tensors)
        bits = [[set(map(bytes, row.reshape(-1, 1).view(np.uint8))) for row in tensor] for tensor in tensors]
        common = [set.intersection(*(worlds[world] for worlds in bits)) for world in range(WORLDS)]
        counts = [[np.unique(t[w], return_counts=True)[1].max() for t in tensors] for w in range(WORLDS)]
        assert sum(len(found) >= 2 and min(count) > 6 for found, count in zip(common, counts, strict=True)) >= THEMES


@pytest.mark.parametrize(
    ("dtype", "between", "narrow"), [("float64", "float32", "float16"), ("int64", "float64", "float32")]
)
def test_what_is_rounded_twice_shows(dtype: str, between: str, narrow: str) -> None:
    """No number of any world lay so near to the middle of two narrower ones: a cast in between was called idle."""
    numbers = specials(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        assert (numbers.astype(between).astype(narrow) != numbers.astype(narrow))[~np.isnan(numbers)].any()


def test_ends_of_narrower_floats_are_among_the_special_numbers() -> None:
    """Of a double no number was finite as a float and infinite in 16 bits of it: that both are finite together was
    called right."""
    with np.errstate(over="ignore"):
        floats = specials("float64").astype("float32")
        assert (np.isfinite(floats) & ~np.isfinite(floats.astype(ml_dtypes.bfloat16))).any()


def test_in_some_models_nan_and_an_infinity_are_everywhere() -> None:
    """Two pools for one were called right with two of three seeds: they differ where a window holds a NaN and, behind
    it, nothing above what a pool begins with."""
    tensors = [RandomElements(seed).tensor((3, 8)) for seed in range(40)]
    nan_counts = np.array([[np.isnan(world).sum() for world in tensor] for tensor in tensors])
    least_counts = np.array([[np.isneginf(world).sum() for world in tensor] for tensor in tensors])
    assert ((nan_counts > 6) & (least_counts > 6)).any(axis=1).sum() >= 3
