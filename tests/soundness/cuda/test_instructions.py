"""Instructions of a warp, each lane and register against NumPy, by the fragments of the PTX ISA (9.7.14.5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from eqsat_layout.soundness.cuda import KernelFault, Simulator

LANES = range(32)
M, N = 16, 8


@dataclass(frozen=True)
class Mma:
    """``depth``: K; ``a``, ``b``, ``c``: element types as PTX names them."""

    depth: int
    a: str
    b: str
    c: str

    @property
    def opcode(self) -> str:
        return f"mma.sync.aligned.m16n8k{self.depth}.row.col.{self.c}.{self.a}.{self.b}.{self.c}"

    @property
    def name(self) -> str:
        return f"mma_{self.depth}_{self.a}_{self.b}_{self.c}"


MMAS = [
    *(Mma(depth, "f16", "f16", c) for depth in (8, 16) for c in ("f32", "f16")),
    *(Mma(depth, "bf16", "bf16", "f32") for depth in (8, 16)),
    *(Mma(depth, "tf32", "tf32", "f32") for depth in (4, 8)),
    *(
        Mma(depth, a, b, "s32")
        for depth in (16, 32)
        for a, b in (("s8", "s8"), ("u8", "u8"), ("s8", "u8"), ("u8", "s8"))
    ),
]
DTYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f32": np.float32,
    "s8": np.int8, "u8": np.uint8, "s32": np.int32,
}  # fmt: skip


def a_place(mma: Mma, lane: int, i: int) -> tuple[int, int]:
    """Row and column of element ``i`` of A in a lane: the sections of each shape, written out as they stand there."""
    group, thread = lane >> 2, lane % 4
    if mma.a == "tf32":
        return group + 8 * (i % 2), thread + 4 * (i // 2)
    if mma.a in ("f16", "bf16"):
        low_row = i < 2 if mma.depth == 8 else i < 2 or 4 <= i < 6
        return group + (0 if low_row else 8), thread * 2 + (i & 1) + (8 if i >= 4 else 0)
    low_row = i < 4 if mma.depth == 16 else i < 4 or 8 <= i < 12
    return group + (0 if low_row else 8), thread * 4 + (i & 3) + (16 if i >= 8 else 0)


def b_place(mma: Mma, lane: int, i: int) -> tuple[int, int]:
    group, thread = lane >> 2, lane % 4
    if mma.b == "tf32":
        return thread + 4 * i, group
    if mma.b in ("f16", "bf16"):
        return thread * 2 + (i & 1) + (8 if i >= 2 else 0), group
    return thread * 4 + (i & 3) + (16 if i >= 4 else 0), group


def c_place(_: Mma, lane: int, i: int) -> tuple[int, int]:
    return (lane >> 2) + (0 if i < 2 else 8), (lane % 4) * 2 + (i & 1)


def fragments(mma: Mma, matrix: np.ndarray, place: Callable[[Mma, int, int], tuple[int, int]]) -> np.ndarray:
    """What each lane holds of a matrix."""
    each = matrix.size // 32
    return np.array([[matrix[place(mma, lane, i)] for i in range(each)] for lane in LANES], matrix.dtype)


def mma_kernel(mma: Mma) -> str:
    sizes = [32 if kind in ("tf32", "f32", "s32") else 16 if "f16" in kind else 8 for kind in (mma.a, mma.b, mma.c)]
    elements = (M * mma.depth, mma.depth * N, M * N)
    counts = [count * size // 32 // 32 for count, size in zip(elements, sizes, strict=True)]
    first = [counts[2], counts[2] + counts[0], counts[2] + counts[0] + counts[1]]
    letter = "f" if mma.c == "f32" else "r"
    holder = "float" if mma.c == "f32" else "unsigned"

    def group(begin: int, count: int) -> str:
        return "{" + ", ".join(f"%{begin + i}" for i in range(count)) + "}"

    groups = [group(0, counts[2]), *(group(begin, count) for begin, count in zip(first, counts, strict=True))]
    text = f"{mma.opcode} {', '.join(groups)};"
    outs = ", ".join(f'"={letter}"(d[t * {counts[2]} + {i}])' for i in range(counts[2]))
    ins = ", ".join(
        f'"{kind}"({array}[t * {count} + {i}])'
        for kind, array, count in (("r", "a", counts[0]), ("r", "b", counts[1]), (letter, "c", counts[2]))
        for i in range(count)
    )
    return (
        f'extern "C" __global__ void {mma.name}({holder}* d, unsigned* a, unsigned* b, {holder}* c) {{\n'
        f'  int t = threadIdx.x;\n  __asm__ __volatile__(\n    "{text}\\n"\n    : {outs}\n    : {ins});\n}}\n'
    )


def matrix_kernel(direction: str, count: int, transposed: bool) -> str:
    name = f"{direction}_{count}_{int(transposed)}"
    registers = "{" + ", ".join(f"%{i + (direction == 'st')}" for i in range(count)) + "}"
    opcode = f"{direction}matrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16"
    address = f'"r"((unsigned)__cvta_generic_to_shared(s + t % {8 * count} * 8))'
    held = ", ".join(f'"{"=" if direction == "ld" else ""}r"(r[t * {count} + {i}])' for i in range(count))
    if direction == "ld":
        asm = f'asm volatile("{opcode} {registers}, [%{count}];" : {held} : {address});'
    else:
        asm = f'asm volatile("{opcode} [%0], {registers};" :: {address}, {held});'
    fill = f"for (int i = t; i < {64 * count}; i += 32) s[i] = m[i]; __syncthreads();"
    drain = f"__syncthreads(); for (int i = t; i < {64 * count}; i += 32) m[i] = s[i];"
    return (
        f'extern "C" __global__ void {name}(unsigned* r, unsigned short* m) {{\n'
        f"  __shared__ alignas(128) unsigned short s[{64 * count}]; int t = threadIdx.x;\n"
        f"  {fill if direction == 'ld' else ''} {asm} {drain if direction == 'st' else ''}\n}}\n"
    )


MATRICES = [(direction, count, trans) for direction in ("ld", "st") for count in (1, 2, 4) for trans in (False, True)]

LANE_KERNELS = """
extern "C" __global__ void shuffles(int* out, int* which, int width) {
  int t = threadIdx.x, w = which[t];
  out[t] = __shfl_sync(0xffffffff, t, w, width);
  out[32 + t] = __shfl_up_sync(0xffffffff, t, w, width);
  out[64 + t] = __shfl_down_sync(0xffffffff, t, w, width);
  out[96 + t] = __shfl_xor_sync(0xffffffff, t, w, width);
}
extern "C" __global__ void votes(unsigned* out, int* p) {
  int t = threadIdx.x;
  out[t] = __ballot_sync(0xffffffff, p[t]);
  out[32 + t] = __any_sync(0xffffffff, p[t]);
  out[64 + t] = __all_sync(0xffffffff, p[t]);
  out[96 + t] = __reduce_add_sync(0xffffffff, (unsigned)p[t]);
  out[128 + t] = __reduce_max_sync(0xffffffff, p[t]);
  out[160 + t] = __match_any_sync(0xffffffff, p[t]);
  if (p[t] > 2) out[192 + t] = __activemask();
}
extern "C" __global__ void block_votes(int* out, int* p) {
  out[threadIdx.x] = __syncthreads_count(p[threadIdx.x] > 2);
  out[64 + threadIdx.x] = __syncthreads_or(p[threadIdx.x] > 2);
  out[128 + threadIdx.x] = __syncthreads_and(p[threadIdx.x] > 2);
}
extern "C" __global__ void sixteen(float* out, float* x) {
  float v = __shfl_down_sync(0xffffffff, x[threadIdx.x], 8, 32);
  out[threadIdx.x] = v;
}
extern "C" __global__ void half_a_warp(unsigned* r) {
  if (threadIdx.x > 15) return;
  __shared__ alignas(16) unsigned short s[64];
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
    : "=r"(r[0]) : "r"((unsigned)__cvta_generic_to_shared(s)));
}
"""


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    saturating = Mma(16, "s8", "s8", "s32")
    kernel = (
        mma_kernel(saturating).replace("row.col.s32", "row.col.satfinite.s32").replace(saturating.name, "saturating")
    )
    return Simulator("".join([*map(mma_kernel, MMAS), *(matrix_kernel(*m) for m in MATRICES), LANE_KERNELS, kernel]))


def random_matrix(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> np.ndarray:
    dtype = DTYPES[kind]
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(np.int16 if kind == "s32" else dtype)
        return rng.integers(info.min, info.max, shape, dtype=np.int32, endpoint=True).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("mma", MMAS, ids=lambda mma: mma.name)
def test_mma_is_the_product_in_each_lane(simulator: Simulator, mma: Mma) -> None:
    rng = np.random.default_rng(mma.depth)
    a, b = random_matrix(rng, mma.a, (M, mma.depth)), random_matrix(rng, mma.b, (mma.depth, N))
    c = random_matrix(rng, mma.c, (M, N))
    words = [fragments(mma, x, place).view(np.uint32) for x, place in ((a, a_place), (b, b_place))]
    given = fragments(mma, c, c_place)
    d = np.zeros_like(given)
    holder = np.float32 if mma.c == "f32" else np.uint32
    simulator.launch(mma.name, [d.view(holder), *map(np.ascontiguousarray, words), given.view(holder)], (1,), (32,))

    def exact(x: np.ndarray, kind: str) -> np.ndarray:
        return (x.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(float) if kind == "tf32" else x.astype(float)

    wanted = (exact(a, mma.a) @ exact(b, mma.b) + exact(c, mma.c)).astype(DTYPES[mma.c])
    np.testing.assert_array_equal(d, fragments(mma, wanted, c_place))


def test_saturating_sums_stay_at_the_limit(simulator: Simulator) -> None:
    ones = np.full((32, 2), 0x7F7F7F7F, np.uint32)
    d, c = np.zeros((32, 4), np.uint32), np.full((32, 4), 2**31 - 5, np.uint32)
    simulator.launch("saturating", [d, ones, ones[:, :1].copy(), c], (1,), (32,))
    assert (d == 2**31 - 1).all()


@pytest.mark.parametrize(("direction", "count", "transposed"), MATRICES)
def test_matrices_of_shared_memory(simulator: Simulator, direction: str, count: int, transposed: bool) -> None:
    rng = np.random.default_rng(count)
    matrices = rng.integers(0, 2**16, (count, 8, 8), dtype=np.uint16)
    whole = matrices.swapaxes(1, 2) if transposed else matrices
    held = np.array([[m[lane // 4, 2 * (lane % 4) :][:2] for m in whole] for lane in LANES], np.uint16).view(np.uint32)
    name = f"{direction}_{count}_{int(transposed)}"
    if direction == "ld":
        registers = np.zeros_like(held)
        simulator.launch(name, [registers, matrices], (1,), (32,))
        np.testing.assert_array_equal(registers, held)
    else:
        stored = np.zeros_like(matrices)
        simulator.launch(name, [held, stored], (1,), (32,))
        np.testing.assert_array_equal(stored, matrices)


@pytest.mark.parametrize("width", [2, 4, 8, 16, 32])
def test_shuffles(simulator: Simulator, width: int) -> None:
    which = np.random.default_rng(width).integers(0, 32, 32, dtype=np.int32)
    out = np.zeros((4, 32), np.int32)
    simulator.launch("shuffles", [out, which, width], (1,), (32,), order=2)
    for lane in LANES:
        begin, end, w = lane // width * width, lane // width * width + width - 1, int(which[lane])
        wanted = [begin + w % width, lane - w, lane + w, lane ^ w]
        wanted[1] = wanted[1] if wanted[1] >= begin else lane
        wanted[2] = wanted[2] if wanted[2] <= end else lane
        wanted[3] = wanted[3] if wanted[3] <= end else lane
        assert out[:, lane].tolist() == wanted


@pytest.mark.parametrize("order", range(3))
def test_votes(simulator: Simulator, order: int) -> None:
    p = np.random.default_rng(3).integers(0, 6, 32, dtype=np.int32)
    out = np.zeros((7, 32), np.uint32)
    simulator.launch("votes", [out, p], (1,), (32,), order=order)
    bits = sum(1 << lane for lane in LANES if p[lane])
    active = sum(1 << lane for lane in LANES if p[lane] > 2)
    for lane in LANES:
        equal = sum(1 << other for other in LANES if p[other] == p[lane])
        wanted = [bits, 1, int(p.all()), p.sum(), p.max(), equal, active if p[lane] > 2 else 0]
        assert out[:, lane].tolist() == wanted


def test_votes_of_a_block(simulator: Simulator) -> None:
    p = np.random.default_rng(3).integers(0, 6, 64, dtype=np.int32)
    out = np.zeros((3, 64), np.int32)
    simulator.launch("block_votes", [out, p], (1,), (64,), order=2)
    assert (out == np.array([[(p > 2).sum()], [1], [0]])).all()


def test_what_comes_from_a_lane_that_is_not_there_is_nan(simulator: Simulator) -> None:
    out, x = np.zeros(16, np.float32), np.arange(16, dtype=np.float32)
    simulator.launch("sixteen", [out, x], (1,), (16,))
    np.testing.assert_array_equal(out, [*range(8, 16), *[np.nan] * 8])


def test_matrices_need_all_lanes(simulator: Simulator) -> None:
    with pytest.raises(KernelFault, match=r"only lanes 0xffff are there") as found:
        simulator.launch("half_a_warp", [np.zeros(1, np.uint32)], (1,), (32,))
    assert found.value.kind == "convergence"
