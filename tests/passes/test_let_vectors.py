"""Reductions to several results at once, whose values are chosen by conditions."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

import eqsat_layout
from eqsat_layout.readers.layers.window_maxima import Windows, window_maxima


@pytest.mark.parametrize("size", [3, 1])
def test_each_lane_of_a_vector_has_its_own_choice(size: int) -> None:
    """All lanes got what the last one chose: TVM takes a choice apart at the statement that names it. Windows of one
    element without padding choose nothing, but ask whether a number is NaN, which TVM does one by one too."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([1, 1, 1, 8], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = window_maxima(builder, x, Windows([1, size], [1, 1], [0, size // 2], [1, 1], [1, 8]))
            result = builder.emit_output(relax.Tuple(found))
        builder.emit_func_output(result)
    row = np.array([5, 1, 2, 3, 9, 9, 0, 4], "float32")
    session = eqsat_layout.Session(builder.get())
    values, places = session.run(None, {"x": row.reshape(1, 1, 1, 8)})
    padded = np.pad(row, size // 2, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, size)
    np.testing.assert_array_equal(values.reshape(-1), windows.max(1))
    np.testing.assert_array_equal(places.reshape(-1), windows.argmax(1) + np.arange(8) - size // 2)
