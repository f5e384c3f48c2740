"""Layout transforms through shared memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from targets.cuda.running import Kernels, inputs_of, result_of
from tvm import te

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cuda.kernels.exchange_kernel import exchange_kernel


def copy(shape: tuple[int, ...], result: tuple[int, ...], index: Callable[..., Any], dtype: str = "float32") -> Any:
    """``y[at] = x[index(at)] + 1``."""
    x = te.placeholder(shape, dtype, name="x")
    y = te.compute(result, lambda *at: x(*index(*at)) + te.const(1, dtype), name="y")
    return te.create_prim_func([x, y])


CASES = {
    "NCHW to NHWC": ((2, 5, 7, 9), (2, 7, 9, 5), lambda n, h, w, c: (n, c, h, w)),
    "NHWC to NCHW": ((2, 6, 7, 40), (2, 40, 6, 7), lambda n, c, h, w: (n, h, w, c)),
    "to blocks of 16": ((2, 32, 5, 7), (2, 2, 5, 7, 16), lambda n, o, h, w, i: (n, o * 16 + i, h, w)),
    "few channels": ((2, 4, 11, 9), (2, 11, 9, 4), lambda n, h, w, c: (n, c, h, w)),
    "a matrix": ((70, 33), (33, 70), lambda i, j: (j, i)),
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", CASES)
def test_each_element_comes_to_its_place(name: str, dtype: str) -> None:
    shape, result, index = CASES[name]
    func = copy(shape, result, index, dtype)
    kernels = Kernels(exchange_kernel(func))
    arrays = inputs_of(func)
    arrays[0][...] = np.arange(math.prod(shape)).reshape(shape) % 2000
    expected = np.empty(result)
    for place in np.ndindex(*result):
        expected[place] = arrays[0][index(*place)] + 1
    for order in range(3):
        assert (result_of(kernels, arrays, order) == expected).all()
    (report,) = kernels.reports
    assert report.bank_conflicts <= 0.1 * report.shared_accesses


def test_what_lies_along_the_result_is_refused() -> None:
    with pytest.raises(Refused, match="already"):
        exchange_kernel(copy((8, 16, 32), (16, 8, 32), lambda i, j, k: (j, i, k)))
