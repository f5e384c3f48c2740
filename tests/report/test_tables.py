"""Tables in terminals of any width."""

from __future__ import annotations

import pytest

from eqsat_layout.report.changes import Change, changes_table
from eqsat_layout.report.text import comparison_table, plain_text


@pytest.mark.parametrize("width", [100, 60, 40, 24])
def test_no_column_vanishes_in_a_narrow_terminal(width: int) -> None:
    change = Change("nn.conv2d", "NCHW", "winograd F(4,3), NCHW16c", 2.33e-3, 679e-6, ("conv",))
    said = " ".join(plain_text(changes_table([change], 10), width).split())
    for cell in (
        "nn.conv2d",
        "was",
        "NCHW",
        "is now",
        "winograd",
        "F(4,3),",
        "NCHW16c",
        "2.33 ms",
        "679 us",
        "1.65 ms",
    ):
        assert cell in said
    rows = comparison_table(("input", "plan"), [("constants", "446 KiB", "1.70 MiB", "once per layout")])
    assert "1.70 MiB" in " ".join(plain_text(rows, width).split())
