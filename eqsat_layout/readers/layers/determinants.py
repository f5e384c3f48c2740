"""Determinants of small matrices, which TVM's frontends don't take: elimination with the largest pivot.

In: matrices, in the last two axes of a tensor. Out: a number for each, in Relax.
"""
# mypy: disable-error-code="valid-type, no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Any

from tvm import relax, tirx
from tvm.script import tirx as T

from eqsat_layout.errors import EqsatError


def determinant(builder: relax.BlockBuilder, matrices: Any) -> Any:
    """The determinant of the matrices in the last two axes."""
    *outer, size, _ = matrices.ty.shape.values
    if not isinstance(size, tirx.IntImm) or not all(isinstance(e, tirx.IntImm) for e in outer):
        raise EqsatError("determinants of matrices of unknown size are not done")
    dtype, n, many = str(matrices.ty.dtype), int(size), 1
    for extent in outer:
        many *= int(extent)
    flat = builder.emit(relax.op.reshape(matrices, [many, n, n]))
    kernel = builder.add_func(_determinants(many, n, dtype), "determinants")
    made = builder.emit(relax.call_tir(kernel, [flat], relax.TensorType([many], dtype)))
    return builder.emit(relax.op.reshape(made, list(outer)))


def _determinants(many: int, n: int, dtype: str) -> tirx.PrimFunc:
    @T.prim_func(private=True, s_tir=True)
    def determinants(x: T.Buffer((many, n, n), dtype), y: T.Buffer((many,), dtype)):
        own = T.sblock_alloc_buffer((n, n), dtype)
        best = T.sblock_alloc_buffer((1,), "int32")
        held = T.sblock_alloc_buffer((1,), dtype)
        with T.sblock("elimination"):
            T.reads(x[:, :, :])
            T.writes(y[:], own[:, :], best[:], held[:])
            for b in range(many):
                for i, j in T.grid(n, n):
                    own[i, j] = x[b, i, j]
                y[b] = T.Cast(dtype, 1)
                for k in range(n):
                    best[0] = k
                    for i in range(n - 1 - k):
                        if T.abs(own[k + 1 + i, k]) > T.abs(own[best[0], k]):
                            best[0] = k + 1 + i
                    y[b] = T.if_then_else(best[0] == k, y[b], -y[b])
                    for j in range(n):
                        held[0] = own[k, j]
                        own[k, j] = own[best[0], j]
                        own[best[0], j] = held[0]
                    y[b] = y[b] * own[k, k]
                    for i in range(n - 1 - k):  # nothing is left to do below a pivot of 0
                        held[0] = T.if_then_else(
                            own[k, k] == T.Cast(dtype, 0), T.Cast(dtype, 0), own[k + 1 + i, k] / own[k, k]
                        )
                        for j in range(n):
                            own[k + 1 + i, j] = own[k + 1 + i, j] - held[0] * own[k, j]

    return determinants
