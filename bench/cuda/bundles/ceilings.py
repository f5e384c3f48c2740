"""A kernel that does nothing but multiply on tensor cores: what ``mma.sync`` reaches at most on a card.

In: an architecture, blocks and turns. Out: an item of a bundle and its program. (A library's product may reach more
where a card has instructions of whole warp groups; torch's figures stand beside.)
"""

from __future__ import annotations

from typing import Final

from bench.cuda.bundles.items import CEILING, Item
from eqsat_layout.targets.cuda.host.executable import CudaProgram
from eqsat_layout.targets.gpu.host.plan import Allocation, Argument, HostFunction, HostPlan, Launch, TensorInMemory

_THREADS: Final = 256
_SUMS: Final = 8
"""Products of a warp that do not wait for each other."""
_FLOPS: Final = 2 * 16 * 8 * 16
"""Of one instruction of a warp."""
_NAME: Final = "mma_f16"

_SOURCE: Final = """
extern "C" __global__ void __launch_bounds__(THREADS) NAME(float* out, int turns) {
  unsigned a[4], b[2];
  float sums[SUMS][4];
  for (int i = 0; i < 4; ++i) a[i] = 0x3c003800u + threadIdx.x * 4 + i;
  for (int i = 0; i < 2; ++i) b[i] = 0x38003400u + threadIdx.x * 2 + i;
#pragma unroll
  for (int s = 0; s < SUMS; ++s)
    for (int i = 0; i < 4; ++i) sums[s][i] = 0.0f;
  for (int turn = 0; turn < turns; ++turn) {
#pragma unroll
    for (int s = 0; s < SUMS; ++s) {
      asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[s][0]), "+f"(sums[s][1]), "+f"(sums[s][2]), "+f"(sums[s][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
  }
  float total = 0.0f;
#pragma unroll
  for (int s = 0; s < SUMS; ++s)
    for (int i = 0; i < 4; ++i) total += sums[s][i];
  out[blockIdx.x * THREADS + threadIdx.x] = total;
}
"""


def ceiling(arch: str, blocks: int, turns: int) -> tuple[Item, CudaProgram]:
    """``turns``: products of each of a warp's sums."""
    source = _SOURCE.replace("THREADS", str(_THREADS)).replace("SUMS", str(_SUMS)).replace("NAME", _NAME)
    arguments = (Argument(memory=0), Argument(number=turns, dtype="int32"))
    launch = Launch(_NAME, _NAME, arguments, (blocks, 1, 1), (_THREADS, 1, 1))
    count = blocks * _THREADS
    plan = HostPlan(
        (Allocation(4 * count),),
        (TensorInMemory((count,), "float32", "global", 0),),
        (),
        (HostFunction("main", (), (), (), (launch,), 0),),
    )
    flops = blocks * (_THREADS // 32) * turns * _SUMS * _FLOPS
    return Item(_NAME, CEILING, (), (), said={"flops": flops}), CudaProgram({_NAME: source}, plan, [], arch)
