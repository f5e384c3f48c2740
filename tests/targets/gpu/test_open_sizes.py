"""Kernels of open sizes count in 32 bits, where their tensors bound all that they count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import te, tirx

from eqsat_layout.targets.cuda.lowering import lowered
from eqsat_layout.targets.gpu.kernels.functions import with_work_items
from eqsat_layout.targets.gpu.kernels.open_sizes import in_32_bits

N, M = (tirx.Var(name, "int64") for name in "nm")


def maxima(dtype: str = "float32", shape: Sequence[Any] = (N, M, 7)) -> Any:
    """Along the middle axis."""
    x = te.placeholder(shape, dtype, "x")
    k = te.reduce_axis((0, shape[1]), "k")
    return te.create_prim_func([x, te.compute((shape[0], shape[2]), lambda i, j: te.max(x[i, k, j], axis=k))])


def test_divisions_by_open_sizes_have_32_bits() -> None:
    """They had 64: a device takes a hundred instructions for each."""
    func = with_work_items(in_32_bits(maxima()))
    (source,) = lowered({"f": func}, tvm.target.Target({"kind": "cuda", "arch": "sm_90"})).sources.values()
    assert "(int64_t)" not in source
    assert "int m, int n)" in source


def test_what_tensors_do_not_bound_is_left() -> None:
    """Elements of 64 bits, known sizes, and a result inside that is larger than all that are given."""
    x, y = (te.placeholder((size,), "float32", name) for size, name in ((N, "x"), (M, "y")))
    outer = te.compute((N, M), lambda i, j: x[i] * y[j], "outer")
    k = te.reduce_axis((0, M), "k")
    sums = te.create_prim_func([x, y, te.compute((N,), lambda i: te.sum(outer[i, k], axis=k))])
    for func in (maxima("int64"), maxima(shape=(3, 4, 5)), sums):
        assert in_32_bits(func) is func
