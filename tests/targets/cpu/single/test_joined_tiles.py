"""Tiles over several axes at once: what is joined once is not joined again."""

from __future__ import annotations

from targets.machines import HALVES
from tvm import te

from eqsat_layout.targets.cpu.model.register_tiles import joined_tile
from eqsat_layout.targets.cpu.single.joined_tiles import join_tiles
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of


def product_of_a_batch(images: int, rows: int, steps: int, columns: int):
    """``images`` times ``rows`` rows of ``steps`` elements by weights in panels of 16 columns."""
    data = te.placeholder((images, rows, steps), name="data")
    weights = te.placeholder((columns // 16, steps, 16), name="weights")
    k = te.reduce_axis((0, steps), "k")

    def element(n, i, j):
        return te.sum(data[n, i, k] * weights[j // 16, k, j % 16], axis=k)

    y = te.compute((images, rows, columns), element, name="product")
    return new_schedule(te.create_prim_func([data, weights, y], index_dtype_override="int64"))


def test_rows_of_several_images_that_lie_a_page_apart_are_joined_once():
    """CLIP's MLP for four images, SegFormer's head: rows of 4 KiB share one set of L1, so that few make a tile; joined,
    their distance was not known, a tile of 13 looked better and was made of overlapping tiles: half as fast."""
    sch = product_of_a_batch(4, 197, 1024, 256)
    wanted = joined_tile(stages_of(sch)[0], HALVES)
    assert wanted is not None
    assert (wanted.first, wanted.last) == (0, 2)
    joined = stages_of(join_tiles(sch, HALVES))[0]
    assert [axis.extent for axis in joined.spatial] == [wanted.count, wanted.size, 256]
