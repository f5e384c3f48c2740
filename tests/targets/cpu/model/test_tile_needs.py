"""What tiles need is read off indices: for many tiles at once the same as for each alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tvm import te

from eqsat_layout.targets.cpu.model.chain import chain_of
from eqsat_layout.targets.cpu.model.tile_needs import TileNeeds, as_arrays
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of


def pooled_product():
    """A product, then its sums over windows of three, two apart, with one constant and one blocked index."""
    data, weights = te.placeholder((33, 8)), te.placeholder((8, 4, 16))
    c, w = te.reduce_axis((0, 8)), te.reduce_axis((0, 3))
    product = te.compute((1, 33, 64), lambda n, i, j: te.sum(data[n * 33 + i, c] * weights[c, j // 16, j % 16], axis=c))
    pooled = te.compute((16, 64), lambda i, j: te.sum(product[0, 2 * i + w, j], axis=w))
    return chain_of(stages_of(new_schedule(te.create_prim_func([data, weights, pooled], index_dtype_override="int64"))))


CHAIN = pooled_product()


def plain(sizes, number):
    """The sizes of one tile."""
    return [tuple(int(size[min(number, len(size) - 1)]) for size in stage) for stage in sizes]


def test_a_window_needs_more_than_it_makes():
    needed = TileNeeds().of_chain(CHAIN, as_arrays([(4, 16), (1, 64)]))
    assert plain(needed, 0) == [(1, 9, 16), (4, 16)]
    assert plain(needed, 1) == [(1, 3, 64), (1, 64)]


@given(st.lists(st.tuples(st.integers(1, 16), st.sampled_from([1, 8, 16, 32, 64])), min_size=1, max_size=9))
def test_tiles_do_not_see_each_other(tiles):
    """Nor do axes that are the same for all tiles: those of constant indices are one number, and once failed."""
    needs = TileNeeds()
    together = needs.of_chain(CHAIN, as_arrays(tiles))
    for number, tile in enumerate(tiles):
        alone = TileNeeds().of_chain(CHAIN, as_arrays([tile]))
        assert plain(together, number) == plain(alone, 0)
        for stage, extents, own in zip(CHAIN.stages, together, alone, strict=True):
            ours, theirs = needs.of_loads(stage, extents), TileNeeds().of_loads(stage, own)
            assert plain(ours, number) == plain(theirs, 0)


def test_parts_of_one_result_need_what_lies_between_them():
    """Gates: of 36 channels 3 tiles need columns i, 12 + i and 24 + i, 28 to a tile of 4, which were taken for 4."""
    data, weights = te.placeholder((5, 8)), te.placeholder((8, 36))
    c = te.reduce_axis((0, 8))
    product = te.compute((5, 36), lambda i, j: te.sum(data[i, c] * weights[c, j], axis=c))
    gated = te.compute((5, 12), lambda i, j: product[i, j] * product[i, 12 + j] + product[i, 24 + j])
    chain = chain_of(stages_of(new_schedule(te.create_prim_func([data, weights, gated], index_dtype_override="int64"))))
    needed = TileNeeds().of_chain(chain, as_arrays([(1, 4), (5, 12)]))
    assert plain(needed, 0) == [(1, 28), (1, 4)]
    assert plain(needed, 1) == [(5, 36), (5, 12)]
