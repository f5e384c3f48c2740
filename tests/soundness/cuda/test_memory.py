"""Shared memory, vectors, atomics and asynchronous copies: what they compute, and what the launch says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from eqsat_layout.soundness.cuda import KernelFault, Simulator

ATOMICS: dict[str, Any] = {
    "float": np.float32, "double": np.float64, "int": np.int32, "unsigned int": np.uint32,
    "unsigned long long": np.uint64, "half": np.float16, "nv_bfloat16": ml_dtypes.bfloat16,
}  # fmt: skip

KERNELS = r"""
extern "C" __global__ void copies(unsigned* out, unsigned* x, int taken, int skip) {
  extern __shared__ __align__(16) uchar dynamic[];
  __shared__ alignas(16) unsigned fixed[2][64];
  int t = threadIdx.x;
  for (int i = 0; i < 4; i++) { ((unsigned*)dynamic)[4 * t + i] = 7; }
  unsigned to = (unsigned)__cvta_generic_to_shared(dynamic + 16 * t);
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], %2, %3;"
    :: "r"(to), "l"(x + 4 * t), "n"(16), "r"(taken));
  __asm__ __volatile__(
    "{\n"
    " .reg .pred p;\n"
    " setp.ne.b32 p, %2, 0;\n"
    " @p cp.async.ca.shared.global [%0], [%1], 8;\n"
    " @!p st.shared.v2.u32 [%0], {%3, %3};\n"
    "}\n"
    :: "r"((unsigned)__cvta_generic_to_shared(&fixed[1][2 * t])), "l"(x + 2 * t), "r"((int)(t != skip)), "r"(9));
  asm volatile("cp.async.wait_all;");
  __syncthreads();
  for (int i = 0; i < 4; i++) out[4 * t + i] = ((unsigned*)dynamic)[4 * t + i];
  for (int i = 0; i < 2; i++) out[128 + 2 * t + i] = fixed[1][2 * t + i];
}
extern "C" __global__ void ignored(float* out, float* x) {
  __shared__ alignas(16) float s[32];
  int t = threadIdx.x;
  asm volatile(
    "{ .reg .pred p; setp.gt.s32 p, %2, 9; cp.async.ca.shared.global [%0], [%1], 4, p; cp.async.wait_all; }"
    :: "r"((unsigned)__cvta_generic_to_shared(s + t)), "l"(x + t), "r"(t));
  out[t] = s[t];
}
extern "C" __global__ void late(float* out, float* x) {
  __shared__ float s[64];
  int t = threadIdx.x;
  for (int i = 0; i < 2; i++) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"((unsigned)__cvta_generic_to_shared(s + 32 * i + t)),
      "l"(x + 32 * i + t));
    asm volatile("cp.async.commit_group;");
  }
  x[t] = -1; x[32 + t] = -1;
  asm volatile("cp.async.wait_group 0;");
  out[t] = s[t]; out[32 + t] = s[32 + t];
}
extern "C" __global__ void moves(float4* out, float4* x) {
  __shared__ alignas(16) float4 s[32];
  float a, b, c, d;
  asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4+16];"
    : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "l"(x + threadIdx.x));
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" :: "r"((unsigned)__cvta_generic_to_shared(s + threadIdx.x)),
    "f"(d), "f"(c), "f"(b), "f"(a));
  float4 v = s[threadIdx.x];
  v.x += 1;
  *(float4*)(out + threadIdx.x) = v;
}
extern "C" __global__ void banks(float* out, int stride, int width) {
  __shared__ alignas(16) float s[2048];
  int t = threadIdx.x;
  if (width == 1) s[t * stride] = t;
  if (width == 2) *(float2*)(s + t * stride) = make_float2(t, t);
  if (width == 4) *(float4*)(s + t * stride) = make_float4(t, t, t, t);
  out[t] = t;
}
extern "C" __global__ void rows(unsigned* out, int stride) {
  __shared__ alignas(16) uchar s[4096];
  for (int i = threadIdx.x; i < 1024; i += 32) ((unsigned*)s)[i] = i;
  __syncthreads();
  unsigned at = (unsigned)__cvta_generic_to_shared(s + threadIdx.x % 8 * stride);
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(out[threadIdx.x]) : "r"(at));
}
extern "C" __global__ void minima(int* low, int* high, int* last, int* x) {
  int i = blockIdx.x * 32 + threadIdx.x;
  atomicMin(low, x[i]); atomicMax(high, x[i]);
  int seen = atomicCAS(last, 0, 0);
  while (true) { int before = atomicCAS(last, seen, seen + 1); if (before == seen) break; seen = before; }
}
__device__ half larger(half a, half b) { return a > b ? a : b; }
__host__ __device__ float4 all_of(float4 v, float by) { return make_float4(v.x * by, v.y * by, v.z * by, v.w * by); }
extern "C" __global__ void structs(half* out, half* x, float4* wide, float4* v) {
  int t = threadIdx.x;
  out[t] = larger(x[t], x[t + 32]);
  wide[t] = all_of(v[t], 2);
}
__attribute__((noinline, no_sanitize("thread"))) void behind(float* out) { *out = 1; }
extern "C" __global__ void unseen(float* out) { behind(out); }
extern "C" __global__ void bytes(unsigned* out, unsigned* x, int size) {
  memcpy(out, x, size);
  memset(out + 8, 1, size);
}
extern "C" __global__ void halves_of_floats(float* out, float* x) {
  __shared__ alignas(16) float s[32];
  int t = threadIdx.x;
  ((half*)s)[t] = ((half*)x)[t];
  ((uchar*)out)[2 * t] = ((uchar*)s)[2 * t];
  ((uchar*)out)[2 * t + 1] = ((uchar*)s)[2 * t + 1];
}
extern "C" __global__ void parts(float* sums, float* partial, int* ready, float* x) {
  __shared__ int is_last;
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int i = 0; i < 32; i++) sum += x[blockIdx.x * 32 + i];
    partial[blockIdx.x] = sum;
    __threadfence();
    is_last = atomicAdd(ready, 1) == (int)gridDim.x - 1;
  }
  __syncthreads();
  if (is_last) {
    __threadfence();
    if (threadIdx.x == 0) { float sum = 0; for (int i = 0; i < (int)gridDim.x; i++) sum += partial[i]; sums[0] = sum; }
  }
}
"""


def atomic_name(kind: str) -> str:
    return "sum_" + kind.replace(" ", "_")


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    sums = "".join(
        f'extern "C" __global__ void {atomic_name(kind)}({kind}* out, {kind}* x) {{\n'
        f"  __shared__ {kind} s[4];\n  if (threadIdx.x < 4) s[threadIdx.x] = ({kind})0;\n  __syncthreads();\n"
        "  atomicAdd(s + threadIdx.x % 4, x[blockIdx.x * 32 + threadIdx.x]);\n  __syncthreads();\n"
        "  if (threadIdx.x < 4) atomicAdd(out + threadIdx.x, s[threadIdx.x]);\n}\n"
        for kind in ATOMICS
    )
    return Simulator("#include <cuda_fp16.h>\n#define uchar unsigned char\n" + KERNELS + sums)


@pytest.mark.parametrize("order", range(3))
@pytest.mark.parametrize("taken", [0, 4, 12, 16])
def test_copies_arrive_whole_and_zeros_fill_the_rest(simulator: Simulator, taken: int, order: int) -> None:
    x = np.arange(1, 129, dtype=np.uint32)
    out = np.zeros(192, np.uint32)
    simulator.launch("copies", [out, x, taken, 5], (1,), (32,), 512, order)
    wanted = x.reshape(32, 4).copy()
    wanted[:, taken // 4 :] = 0
    second = x[:64].copy()
    second[10:12] = 9
    np.testing.assert_array_equal(out, [*wanted.ravel(), *second])


def test_a_source_that_is_ignored_gives_zeros(simulator: Simulator) -> None:
    out, x = np.full(32, -1, np.float32), np.arange(1, 11, dtype=np.float32)  # it is not read: there is no more
    simulator.launch("ignored", [out, x], (1,), (32,))
    assert out.tolist() == [*range(1, 11), *[0] * 22]


def test_copies_arrive_as_late_as_they_may(simulator: Simulator) -> None:
    out, x = np.zeros(64, np.float32), np.arange(64, dtype=np.float32)
    simulator.launch("late", [out, x], (1,), (32,))
    assert (out == -1).all()


def test_copies_that_read_more_than_there_is(simulator: Simulator) -> None:
    with pytest.raises(KernelFault, match="reads 4 bytes at byte 252 of global memory of 252 bytes"):
        simulator.launch("late", [np.zeros(64, np.float32), np.zeros(63, np.float32)], (1,), (32,))


def test_moves_of_vectors(simulator: Simulator) -> None:
    x = np.arange(132, dtype=np.float32)
    out = np.zeros((32, 4), np.float32)
    simulator.launch("moves", [out.view(np.complex128), x.view(np.complex128)], (1,), (32,))
    wanted = x[4:].reshape(32, 4)[:, ::-1].copy()
    wanted[:, 0] += 1
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize(
    ("stride", "width", "cycles"),
    [(1, 1, 1), (2, 1, 2), (8, 1, 8), (32, 1, 32), (33, 1, 1), (2, 2, 2), (4, 2, 4), (4, 4, 4), (8, 4, 8), (36, 4, 4)],
)
def test_bank_conflicts(simulator: Simulator, stride: int, width: int, cycles: int) -> None:
    report = simulator.launch("banks", [np.zeros(32, np.float32), stride, width], (1,), (32,))
    assert (report.shared_accesses, report.shared_cycles) == (width, cycles)
    assert report.bank_conflicts == cycles - width


@pytest.mark.parametrize(("stride", "cycles"), [(16, 1), (64, 4), (128, 8), (80, 1), (144, 1)])
def test_bank_conflicts_of_matrices(simulator: Simulator, stride: int, cycles: int) -> None:
    report = simulator.launch("rows", [np.zeros(32, np.uint32), stride], (1,), (32,))
    assert (report.shared_accesses, report.shared_cycles) == (32 + 1, 32 + cycles)


@pytest.mark.parametrize("order", range(3))
@pytest.mark.parametrize("kind", ATOMICS)
def test_atomic_sums(simulator: Simulator, kind: str, order: int) -> None:
    dtype = ATOMICS[kind]
    x = np.random.default_rng(0).integers(0, 3, 128).astype(dtype)
    out = np.zeros(4, dtype)
    simulator.launch(atomic_name(kind), [out, x], (4,), (32,), order=order)
    np.testing.assert_array_equal(out.astype(float), x.astype(float).reshape(-1, 4).sum(0))


def test_atomic_extrema_and_exchange(simulator: Simulator) -> None:
    x = np.random.default_rng(0).integers(-99, 99, 96, dtype=np.int32)
    low, high, last = (np.zeros(1, np.int32) for _ in range(3))
    simulator.launch("minima", [low, high, last, x], (3,), (32,), order=2)
    assert (low[0], high[0], last[0]) == (x.min(), x.max(), 96)


def test_structs_that_functions_take_and_return_are_watched(simulator: Simulator) -> None:
    """GCC's instrumentation leaves out what a call takes from memory and puts there: a result never came back."""
    x, v = np.arange(64, dtype=np.float16)[::-1].copy(), np.arange(128, dtype=np.float32).view(np.complex128)
    out, wide = np.zeros(32, np.float16), np.zeros(32, np.complex128)

    def launch(*changed: tuple[int, int]) -> None:
        arrays = [out, x, wide, v]
        for which, size in changed:
            arrays[which] = arrays[which][:size].copy()
        simulator.launch("structs", arrays, (1,), (32,))

    launch()
    assert (out == x[:32]).all()
    assert (wide.view(np.float32) == 2 * v.view(np.float32)).all()
    for which, size in ((0, 31), (1, 63), (2, 31), (3, 31)):
        with pytest.raises(KernelFault, match=r"at byte \d+ of global memory"):
            launch((which, size))


def test_copies_of_bytes_are_watched(simulator: Simulator) -> None:
    x, out = np.arange(8, dtype=np.uint32), np.zeros(16, np.uint32)
    simulator.launch("bytes", [out, x, 0], (1,), (1,))
    assert not out.any()
    simulator.launch("bytes", [out, x, 32], (1,), (1,))
    assert out.tolist() == [*range(8), *[0x01010101] * 8]
    for arrays in ([out, x[:7].copy()], [out[:15].copy(), x]):
        with pytest.raises(KernelFault, match="at byte"):
            simulator.launch("bytes", [*arrays, 32], (1,), (1,))


def test_what_is_changed_unseen_is_a_fault(simulator: Simulator) -> None:
    with pytest.raises(KernelFault, match="argument 0 is changed by code that the compiler does not watch"):
        simulator.launch("unseen", [np.zeros(1, np.float32)], (1,), (1,))


@pytest.mark.parametrize("order", range(3))
def test_threads_may_write_parts_of_what_is_one_element(simulator: Simulator, order: int) -> None:
    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    simulator.launch("halves_of_floats", [out, x], (1,), (64,), order=order)
    assert (out == x).all()


@pytest.mark.parametrize("order", range(4))
def test_the_last_block_adds_what_all_have_made(simulator: Simulator, order: int) -> None:
    x = np.arange(160, dtype=np.float32)
    sums, partial, ready = np.zeros(1, np.float32), np.zeros(5, np.float32), np.zeros(1, np.int32)
    simulator.launch("parts", [sums, partial, ready, x], (5,), (32,), order=order)
    assert sums[0] == x.sum()


def test_memory_may_be_larger_than_its_elements() -> None:
    """As where a plan gives memory to one tensor after another, and the sizes of their elements differ."""
    source = 'extern "C" __global__ void one(long long* out) { out[0] = 7; }'
    memory = np.zeros(12, "uint8")
    Simulator(source).launch("one", [memory], [1], [1])
    assert memory[:8].view("int64")[0] == 7
    beyond = source.replace("out[0]", "out[1]")
    with pytest.raises(KernelFault, match="8 bytes at byte 8 of global memory of 8 bytes"):
        Simulator(beyond).launch("one", [memory], [1], [1])


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="a process does not say what it maps")
def test_stacks_of_threads_are_given_back() -> None:
    """A process has 65,530 mappings, two a thread: some 200 kernels later no other was loaded."""

    def mappings() -> int:
        return len(Path("/proc/self/maps").read_text().splitlines())

    simulator = Simulator('extern "C" __global__ void nothing(float* x) { x[threadIdx.x] = 0; __syncthreads(); }')
    before = mappings()
    simulator.launch("nothing", [np.ones(256, "float32")], (1, 1, 1), (256, 1, 1))
    assert mappings() < before + 64
