"""A layout rewrite is read off any PrimFunc that is one, and what is written is read back as the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import index_maps
from tir.helpers import legal
from tvm import relax, te

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import UNDEF, Digit, Format, IndexMap
from eqsat_layout.tir.layout_rewrite import LayoutRewrite
from eqsat_layout.tir.rewrite_form import read_primfunc, split_primfunc, write_primfunc

op = relax.op

FILLS = st.sampled_from([0.0, 1.5, -np.inf, UNDEF])


@st.composite
def formats(draw: st.DrawFn, shape: tuple[int, ...]) -> Format:
    """A padded format of a tensor of ``shape``."""
    padding = [draw(st.sampled_from([(0, 0), (0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (3, 1)])) for _ in shape]
    padded = tuple(e + lo + hi for e, (lo, hi) in zip(shape, padding, strict=True))
    fill = draw(FILLS) if any(map(any, padding)) else None
    return Format.make(draw(index_maps(padded)), padding=padding, fill=fill)


@st.composite
def rewrites(draw: st.DrawFn) -> LayoutRewrite:
    """From a padded format to another."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    made = LayoutRewrite.between(draw(formats(shape)), draw(formats(shape)))
    assert made is not None
    return made


def numbered(shape: tuple[Any, ...]) -> Any:
    return np.arange(1, 1 + int(np.prod(shape)), dtype="float32").reshape(shape)


@given(rewrites())
@settings(max_examples=400)
def test_what_is_written_is_read_back(rewrite: LayoutRewrite) -> None:
    found = read_primfunc(write_primfunc(rewrite, "float32"))
    assert found is not None
    source = numbered(rewrite.shape)
    np.testing.assert_array_equal(found.apply(source), rewrite.apply(source))
    assert (found.fill is UNDEF) == (rewrite.fill is UNDEF)
    assert read_primfunc(write_primfunc(found, "float32")) == found  # what was read is in normal form
