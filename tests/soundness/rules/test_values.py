"""Values of terms in models, and the formats that are theirs."""

from __future__ import annotations

import numpy as np

from eqsat_layout.egraph.names import Names
from eqsat_layout.maps import Format
from eqsat_layout.soundness.rules.stored import lay
from eqsat_layout.soundness.rules.values import Values


def test_formats_of_operands_are_no_formats_of_a_tuple() -> None:
    """Of two operands and of a split in two halves: rules were "not true" in one model of a hundred."""
    names = Names()
    plain = names.format(Format.row_major((2,)))
    values = Values(names, {}, {}, None)  # type: ignore[arg-type]
    halves = [values.intern(np.full((1, 2), value, "float32"), ("Param", str(value))) for value in (1, 2)]
    split = values.intern(tuple(halves), ("Op", "split", (halves[0],)))
    operands, results = names.operand_list([plain, plain]), names.result([plain, plain])
    assert values.fits_all(operands, tuple(halves))
    assert values.fits(results, split)
    assert not values.fits(operands, split)


def test_an_image_is_no_buffer_of_the_same_elements() -> None:
    """Formats that differ in memory alone are other storage."""
    flat = Format.row_major((2, 3))
    buffer, image = (lay(fmt, np.ones((1, 2, 3))) for fmt in (flat, Format.row_major((2, 3), "global.texture")))
    assert buffer.serves(buffer)
    assert not buffer.serves(image)
    assert not image.serves(buffer)
