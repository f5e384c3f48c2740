"""Copies by tensor maps and the barriers that count their bytes: right in every order, and each way to get it wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eqsat_layout.errors import InputError
from eqsat_layout.soundness.cuda import KernelFault, MappedArray, Simulator

ROWS, COLUMNS, TILES = 20, 30, 3
"""The last tile has rows, and each one columns, that are beyond the end."""

INIT = 'asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full + 8 * STAGE) : "memory");'
FENCE = 'asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");'
EXPECT = 'asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(full + 8 * (i % 2)), "r"(1024));'
COPY = (
    'asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes '
    '[%0], [%1, {%2, %3}], [%4];" :: "r"(at + 1024 * (i % 2)), "l"(&m), "r"(0), "r"(8 * i), "r"(full + 8 * (i % 2)));'
)
TRY = (
    'asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }" '
    ': "=r"(done) : "r"(full + 8 * (i % 2)), "r"(i / 2 % 2) : "memory");'
)
WAIT = f"do {{ {TRY} }} while (!done);"
FREE = "__syncthreads(); // who reads has read"
BODY = f"""
  if (t == 0) {{ {INIT.replace("STAGE", "0")} {INIT.replace("STAGE", "1")} {FENCE} int i = 0; {EXPECT} {COPY} }}
  __syncthreads();
  for (int j = 0; j < {TILES}; j++) {{
    {{ int i = j; {WAIT} }}
    {FREE}
    if (t == 0 && j + 1 < {TILES}) {{ int i = j + 1; {EXPECT} {COPY} }}
    for (int n = t; n < 256; n += 64)
      out[j * 256 + n] = s[j % 2 * 256 + (n / 4 ^ n / 32) % 8 * 4 + n / 32 * 32 + n % 4];
  }}
"""
FIRST = f"int i = 0; {EXPECT} {COPY}"

BROKEN = {
    "not waited for": (BODY.replace(WAIT, ""), "async", "before its bulk copy is waited for"),
    "asked once only": (BODY.replace(WAIT, TRY), "async", "before its bulk copy is waited for"),
    "another phase": (BODY.replace("i / 2 % 2", "1 - i / 2 % 2"), "async", "before its bulk copy is waited for"),
    "phases that do not take turns": (BODY.replace("i / 2 % 2", "0"), "async", "before its bulk copy is waited for"),
    "too few bytes": (
        BODY.replace('"r"(1024)', '"r"(1008)'),
        "async",
        "phase .* does not end: 0 arrivals and -16 bytes",
    ),
    "too many bytes": (BODY.replace('"r"(1024)', '"r"(1040)'), "async", "does not end: 0 arrivals and 16 bytes"),
    "bytes of one of two copies": (
        BODY.replace(FIRST, f"{FIRST} {COPY.replace('1024 * (i % 2)', '1024')}"),
        "async",
        "fewer bytes are expected than come",
    ),
    "a stage filled too early": (BODY.replace(FREE, ""), "race", "writes shared memory"),
    "two phases at once": (BODY.replace(FIRST, f"{FIRST} {EXPECT}"), "async", "more threads arrive"),
    "no fence": (BODY.replace(FENCE, ""), "async", "may not see the mbarrier"),
    "no barrier there": (BODY.replace(INIT.replace("STAGE", "1"), ""), "unwritten|async", "nobody has"),
    "initialised unseen": (BODY.replace("__syncthreads();", "", 1), "race|async|unwritten", "shared memory"),
    "written by threads": (
        BODY.replace("if (t == 0)", "s[t] = 0; __syncthreads(); if (t == 0)", 1),
        "async",
        "has written without fence.proxy.async",
    ),
    "more than is waited for": (BODY.replace(f"j + 1 < {TILES}", f"j + 1 <= {TILES}"), "async", "the block ends"),
    "an odd place": (BODY.replace("at + 1024", "at + 64 + 1024"), "alignment", "128 does not divide"),
    "initialised twice": (BODY.replace(INIT.replace("STAGE", "1"), INIT.replace("STAGE", "0")), "async", "twice"),
}


def kernel(name: str, body: str) -> str:
    return f"""
extern "C" __global__ void __launch_bounds__(64) {name}(float* out, const __grid_constant__ CUtensorMap m) {{
  __shared__ __align__(1024) float s[512 + 32];
  __shared__ __align__(8) uint64_t barriers[2];
  unsigned at = __cvta_generic_to_shared(s), full = __cvta_generic_to_shared(barriers), done;
  int t = threadIdx.x;
  {body}
}}
"""


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    bodies = [BODY, *(body for body, _, _ in BROKEN.values())]
    return Simulator("".join(kernel(f"k{i}", body) for i, body in enumerate(bodies)))


def mapped(**changes: Any) -> MappedArray:
    array = np.arange(1, ROWS * 32 + 1, dtype="float32").reshape(ROWS, 32)
    return MappedArray(
        **{"array": array, "size": 4, "extents": (COLUMNS, ROWS), "strides": (128,), "box": (32, 8)} | changes
    )


@pytest.mark.parametrize("order", [0, 1, 2])
def test_tiles_come_with_zeros_beyond_the_ends(simulator: Simulator, order: int) -> None:
    out, given = np.full((TILES * 8, 32), np.nan, "float32"), mapped()
    simulator.launch("k0", [out, given], (1,), (64,), order=order)
    expected = np.zeros_like(out)
    expected[:ROWS, :COLUMNS] = given.array[:, :COLUMNS]
    assert (out == expected).all()


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_pipeline_is_told(simulator: Simulator, name: str) -> None:
    number, (body, kind, why) = [*BROKEN].index(name) + 1, BROKEN[name]
    assert body != BODY
    with pytest.raises(KernelFault, match=why) as found:
        simulator.launch(f"k{number}", [np.zeros((TILES * 8, 32), "float32"), mapped()], (1,), (64,), order=2)
    assert found.value.kind in kind.split("|")


def test_a_copy_in_front_of_the_wait_for_other_launches(simulator: Simulator) -> None:
    with pytest.raises(KernelFault, match="has not waited for the launch before"):
        simulator.launch("k0", [np.zeros((TILES * 8, 32), "float32"), mapped()], (1,), (64,), settled={0})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"strides": (120,)}, "no multiple of 16"),
        ({"box": (64, 8)}, "rows of more than 128 bytes"),
        ({"extents": (COLUMNS, ROWS + 1)}, "beyond the end"),
        ({"extents": (COLUMNS,)}, "no tensor map"),
        ({"extents": (COLUMNS, 0)}, "extent that it can't have"),
    ],
)
def test_maps_that_no_driver_makes(simulator: Simulator, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        simulator.launch("k0", [np.zeros((TILES * 8, 32), "float32"), mapped(**changes)], (1,), (64,))


def test_a_map_is_asked_for_by_name(simulator: Simulator) -> None:
    with pytest.raises(InputError, match=r"argument 1 .*: not a tensor map"):
        simulator.launch("k0", [np.zeros(1, "float32"), np.zeros(1, "float32")], (1,), (64,))
