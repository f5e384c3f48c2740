"""A kernel whose iterations have an order."""

from __future__ import annotations

from tvm.script import tirx as T


@T.prim_func(private=True, s_tir=True)
def in_order(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")) -> None:
    for i in range(64):
        with T.sblock("o"):
            j = T.axis.opaque(64, i)
            T.reads(x[0:64], y[0:64])
            T.writes(y[0:64])
            y[j * 5 % 64] = x[63 - j] + T.if_then_else(j > 0, y[0] * T.float32(0.5), T.float32(0.0))
