"""A kernel that is refused memory gives back what it got before."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.script import tirx as T

import eqsat_layout

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

TIMES = 10_000
SIZE = 1 << 14
"""Floats that a kernel gets, 64 KiB, before it asks for what there is not."""


@T.prim_func(private=True, s_tir=True)
def by_itself(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")) -> None:
    T.func_attr({"tirx.is_scheduled": True})
    got = T.sblock_alloc_buffer((SIZE,), "float32")
    refused = T.sblock_alloc_buffer((1 << 45,), "float32")
    for i in range(SIZE):
        with T.sblock("got"):
            at = T.axis.spatial(SIZE, i)
            got[at] = x[at % 64]
    for i in range(64):
        with T.sblock("refused"):
            at = T.axis.spatial(64, i)
            refused[at * 549755813888] = got[at * 256] * x[at]
    for i in range(64):
        with T.sblock("y"):
            at = T.axis.spatial(64, i)
            y[at] = refused[at * 549755813888] + got[at * 255]


@T.prim_func(private=True, s_tir=True)
def in_a_piece(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")) -> None:
    """Of a loop, in a kernel that got something as well."""
    T.func_attr({"tirx.is_scheduled": True})
    got = T.sblock_alloc_buffer((SIZE,), "float32")
    for i in range(SIZE):
        with T.sblock("got"):
            at = T.axis.spatial(SIZE, i)
            got[at] = x[at % 64]
    for i in T.parallel(4):
        with T.sblock("piece"):
            piece = T.axis.spatial(4, i)
            own = T.sblock_alloc_buffer((SIZE,), "float32")
            refused = T.sblock_alloc_buffer((1 << 45,), "float32")
            for j in range(SIZE):
                with T.sblock("own"):
                    at = T.axis.spatial(SIZE, j)
                    own[at] = got[at] * x[piece]
            for j in range(16):
                with T.sblock("refused"):
                    at = T.axis.spatial(16, j)
                    refused[at * 2199023255552] = own[at * 1024] * x[at]
            for j in range(16):
                with T.sblock("y"):
                    at = T.axis.spatial(16, j)
                    y[piece * 16 + at] = refused[at * 2199023255552] + own[at * 1023] + got[at]


def calling(kernel: Any) -> Any:
    builder = relax.BlockBuilder()
    callee = builder.add_func(kernel, "kernel")
    x = relax.Var("x", relax.TensorType((64,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.call_tir(callee, relax.Tuple([x]), x.ty))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("kernel", [by_itself, in_a_piece])
def test_a_refused_kernel_gives_back_what_it_got(kernel: Any) -> None:
    """64 KiB were lost each time, and so were those of each piece of a loop."""
    session = eqsat_layout.Session(calling(kernel), target={"kind": "llvm", "num-cores": 2})
    given = {"x": np.ones(64, "float32")}

    def refused(times: int) -> None:
        for _ in range(times):
            with pytest.raises(MemoryError, match="out of memory: a "):
                session.run(None, given)

    refused(100)
    before = resident()
    refused(TIMES)
    assert resident() - before < 100 * 4 * SIZE


def resident() -> int:
    """Bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
