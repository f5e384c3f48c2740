"""Kernels of open sizes count in 32 bits, where the host checks all that they count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import tvm
from programs import program
from targets.cuda.simulating import compiled
from tvm import te, tirx
from tvm.relax import op
from tvm.script import tirx as T

from eqsat_layout.targets.cuda.lowering import lowered
from eqsat_layout.targets.gpu.host.sizes import LARGEST, value_of
from eqsat_layout.targets.gpu.kernels.functions import with_work_items
from eqsat_layout.targets.gpu.kernels.open_sizes import open_sizes_in_32_bits

N, M = (tirx.Var(name, "int64") for name in "nm")


def maxima(dtype: str = "float32", shape: Sequence[Any] = (N, M, 7)) -> Any:
    """Along the middle axis."""
    x = te.placeholder(shape, dtype, "x")
    k = te.reduce_axis((0, shape[1]), "k")
    return te.create_prim_func([x, te.compute((shape[0], shape[2]), lambda i, j: te.max(x[i, k, j], axis=k))])


def source(func: Any) -> str:
    made = lowered({"f": with_work_items(func)}, tvm.target.Target({"kind": "cuda", "arch": "sm_90"}))
    (text,) = made.sources.values()
    return text[text.index("{", text.index("f_kernel(")) :]


def pooled() -> Any:
    """What is in the pad is larger than any tensor that the kernel has."""
    x = te.placeholder((N, M), "float32", "x")
    k = te.reduce_axis((0, 3), "k")
    padded = te.compute((N, M + 2), lambda i, j: tirx.if_then_else(tirx.all(j >= 1, j < M + 1), x[i, j - 1], 0.0))
    return te.create_prim_func([x, te.compute((N, M), lambda i, j: te.max(padded[i, j + k], axis=k))])


def repeated(rows: Any) -> Any:
    """As many steps as no tensor has elements."""
    x, y = (te.placeholder((size,), "float32", name) for size, name in ((N, "x"), (M, "y")))
    k = te.reduce_axis((0, N * M), "k")
    total = te.compute((rows,), lambda i: te.sum(x[tirx.floormod(k, N)] * y[tirx.floordiv(k, N)], axis=k))
    return te.create_prim_func([x, y, total])


@pytest.mark.parametrize("func", [maxima(), pooled()], ids=["maxima", "pooled"])
def test_divisions_by_open_sizes_have_32_bits(func: Any) -> None:
    """They had 64: a device takes a hundred instructions for each."""
    assert "int64_t" not in source(func)


def test_elements_keep_their_bits() -> None:
    """Of 64, of which a maximum is made; where they are has 32."""
    text = source(maxima("int64"))
    assert "int64_t compute_local" in text
    assert "int v_i_o" in text


def test_what_neither_tensors_nor_threads_bound_has_64_bits() -> None:
    """A loop of as many steps as two tensors have pairs of elements."""
    assert "for (int64_t" in source(repeated(1))


def test_sizes_that_32_bits_do_not_count_are_refused() -> None:
    """Of tensors, and of threads, which may be more."""
    made = compiled(program(lambda builder, x: builder.emit(op.argmax(x, 1)), (N, M)))
    checked = [cast for function in made.plan.functions for cast in function.casts if f"at most {LARGEST}" in cast.text]
    assert {cast.text.split()[1] for cast in checked} == {"a", "kernel"}
    for rows, fits in ((1 << 20, 1), (LARGEST + 1, 0)):
        assert {value_of(cast.size, {"s0": rows, "s1": 1}) for cast in checked} == {fits}


@T.prim_func(s_tir=True)
def divided(x: T.handle, y: T.handle, z: T.handle):
    n = T.int64()
    X, Y, Z = T.match_buffer(x, (n,), "int32"), T.match_buffer(y, (n,), "bool"), T.match_buffer(z, (n,), "int32")
    bx = T.launch_thread("blockIdx.x", (n + T.int64(255)) // T.int64(256))
    tx = T.launch_thread("threadIdx.x", T.int64(256))
    before = T.bind(bx * T.int64(256) + tx - T.int64(3))
    if bx * T.int64(256) + tx < n:
        at = bx * T.int64(256) + tx
        Y[at] = T.Cast("int64", X[at]) * T.int64(1000) % T.int64(7) == T.int64(0)
        Z[bx * T.int64(256) + tx] = X[before % n]


def in_32_bits() -> str:
    return str(open_sizes_in_32_bits()(tvm.IRModule({"main": divided}))["main"].script())


def test_products_of_elements_keep_their_bits() -> None:
    """What a remainder of such a product is was in 32 bits, and the product with it."""
    assert "* T.int64(1000)" in in_32_bits()


def test_names_of_places_below_0_are_divided_as_such() -> None:
    """-3 % n was -3."""
    text = in_32_bits()
    assert "before % " in text
    assert "truncmod" not in text
