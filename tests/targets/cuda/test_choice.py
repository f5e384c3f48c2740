"""Each PrimFunc goes to the family that its accesses are for."""

from __future__ import annotations

from typing import Any

import pytest
from targets.cuda.cases import conv
from targets.cuda.running import H100, Kernels
from targets.cuda.test_row_kernel import func_of
from tvm import te
from tvm.relax import op

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cuda.kernels.choice import chosen_kernel


def text_of(func: Any, **options: bool) -> str:
    return "".join(Kernels(chosen_kernel(func, H100, **options)).sources.values())


def test_products_rows_and_transforms() -> None:
    product = conv((9, 8), 16, 40, (3, 3), pad=1)("float16", "float32", "float16")
    assert "mma.sync" in text_of(product, approx=True)
    assert "__shfl_xor_sync" in text_of(func_of(lambda x: op.nn.softmax(x), (8, 100)), approx=True)
    assert "tile" in text_of(func_of(lambda x: op.permute_dims(x, [0, 2, 3, 1]), (2, 16, 9, 9)), approx=False)


def test_sums_keep_their_order_without_approx() -> None:
    for func in (
        conv((9, 8), 16, 40, (3, 3))("float32", "float32", "float32"),
        func_of(lambda x: op.nn.softmax(x), (8, 100)),
    ):
        with pytest.raises(Refused, match="elementwise nest"):
            chosen_kernel(func, H100, approx=False)


def test_elementwise_functions_are_left_for_others() -> None:
    x = te.placeholder((64, 64), "float32", name="x")
    func = te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] + 1.0, name="y")])
    with pytest.raises(Refused, match="already"):
        chosen_kernel(func, H100, approx=True)
