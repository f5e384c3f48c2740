"""Products that four warps do together, out of shared memory (wgmma), for the generation of sm_90a only.

In: where both operands of a tile lie: rows of 128 bytes along the steps, whose units of 16 bytes are exchanged by the
row (:class:`~eqsat_layout.targets.cuda.kernels.fills.TileShape`). Out: statements that begin to multiply a tile, and
that wait for the products: what stands between is done meanwhile. A warp has 16 of the 64 rows, in the registers that
the instructions of one warp have them in.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import tirx

from eqsat_layout.targets.cuda.kernels.arithmetics import Arithmetic
from eqsat_layout.targets.cuda.kernels.statements import LANES, address, at, issued, number, sequence_of

LINE_BYTES: Final = 128
"""Of a row of a tile."""
ALIGNED: Final = 1024
"""Bytes that tiles begin at multiples of: the rows in which all exchanges occur."""
GROUP_WARP_ROWS: Final = 16
GROUP_ROWS: Final = 64
_STEP_WORDS: Final = 8
"""Of an instruction, along the steps: 32 bytes."""
_ROWS_APART: Final = 8 * LINE_BYTES
_EXCHANGED: Final = 1 << 62
_UNUSED: Final = 1 << 16
"""What stands for the distance of columns of units, where there are none."""


def shared_writes_seen() -> Any:
    """What this thread has copied to shared memory is seen by the products, which read around it."""
    return issued("fence.proxy.async.shared::cta")


def multiplied_together(
    arithmetic: Arithmetic, columns: int, sums: Any, shared: Any, left: Any, right: Any, instructions: int
) -> Any:
    """``left`` and ``right``: the words where the group's rows and all columns begin."""
    name = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{_SHORT[arithmetic.name]}.{_SHORT[arithmetic.name]}"
    own = [at(sums, index) for index in range(GROUP_WARP_ROWS * columns // LANES)]
    one, zero = number(1), number(0)

    def step(index: int) -> Any:
        places = (_descriptor(shared, begin + index * _STEP_WORDS) for begin in (left, right))
        return issued(name, *own, *places, tirx.const(True, "bool"), one, one, zero, zero)

    return sequence_of(
        [
            issued("wgmma.fence.sync.aligned"),
            *map(step, range(instructions)),
            issued("wgmma.commit_group.sync.aligned"),
        ]
    )


def finished_together() -> Any:
    """The sums are there, and the tile is no longer read."""
    return issued("wgmma.wait_group.sync.aligned", number(0))


_SHORT: Final = {"float16": "f16", "bfloat16": "bf16"}


def _descriptor(shared: Any, word: Any) -> Any:
    """The descriptor of a matrix from this word on (PTX ISA, "Matrix Descriptor Format")."""

    def wide(value: int) -> Any:
        return tirx.IntImm("uint64", value)

    place = tirx.call_extern("uint64", "__cvta_generic_to_shared", address(shared, word))
    units = tirx.shift_right(tirx.bitwise_and(place, wide(0x3FFFF)), wide(4))
    return tirx.bitwise_or(units, wide(_EXCHANGED | (_ROWS_APART >> 4) << 32 | _UNUSED))
