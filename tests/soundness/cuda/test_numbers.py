"""half, bfloat16 and the functions of CUDA against NumPy: all halves, and floats of every size."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from eqsat_layout.soundness.cuda import Simulator

DTYPES: dict[str, Any] = {"half": np.float16, "nv_bfloat16": ml_dtypes.bfloat16}
HEAD = """
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
"""

FLOATS = {
    "expf": np.exp,
    "__expf": np.exp,
    "__logf": np.log,
    "exp2f": np.exp2,
    "tanhf": np.tanh,
    "rsqrtf": lambda x: 1 / np.sqrt(x),
    "__frcp_rn": lambda x: 1 / x,
    "__saturatef": lambda x: np.clip(x, 0, 1),
    "floorf": np.floor,
    "__sinf": np.sin,
}
PTX = {
    "ex2.approx.ftz.f32": np.exp2,
    "lg2.approx.f32": np.log2,
    "rcp.approx.f32": lambda x: 1 / x,
    "tanh.approx.f32": np.tanh,
    "sqrt.approx.f32": np.sqrt,
}


def conversions(kind: str) -> str:
    to, back = ("__float2half_rn", "__half2float") if kind == "half" else ("__float2bfloat16_rn", "__bfloat162float")
    return f"""
extern "C" __global__ void to_{kind}({kind}* out, float* x) {{
  int i = blockIdx.x * 256 + threadIdx.x; out[i] = i % 2 ? {to}(x[i]) : ({kind})x[i];
}}
extern "C" __global__ void from_{kind}(float* out, {kind}* x) {{
  int i = blockIdx.x * 256 + threadIdx.x; out[i] = i % 2 ? {back}(x[i]) : (float)x[i];
}}
extern "C" __global__ void arithmetic_{kind}({kind}* out, {kind}* x, {kind}* y, int n) {{
  int i = blockIdx.x * 256 + threadIdx.x; {kind} a = x[i], b = y[i];
  out[i] = a + b; out[n + i] = a - b; out[2 * n + i] = a * b; out[3 * n + i] = a / b;
  out[4 * n + i] = __hfma(a, b, a); out[5 * n + i] = -a; out[6 * n + i] = hexp(a); out[7 * n + i] = __hmax(a, b);
  ((volatile {kind}*)out)[8 * n + i] = a; {kind} c = ((volatile {kind}*)out)[8 * n + i]; c += b; out[8 * n + i] = c;
  out[9 * n + i] = ({kind})(a < b) + ({kind})(a == a);
}}
"""


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    functions = "".join(
        f'extern "C" __global__ void f{i}(float* out, float* x) {{ out[threadIdx.x] = {name}(x[threadIdx.x]); }}\n'
        for i, name in enumerate(FLOATS)
    )
    opcodes = "".join(
        f'extern "C" __global__ void p{i}(float* out, float* x) {{\n'
        f'  asm volatile("{name} %0, %1;" : "=f"(out[threadIdx.x]) : "f"(x[threadIdx.x]));\n}}\n'
        for i, name in enumerate(PTX)
    )
    others = """
extern "C" __global__ void tf32(unsigned* out, float* x) {
  asm volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(out[threadIdx.x]) : "f"(x[threadIdx.x]));
}
extern "C" __global__ void pairs(half* out, nv_bfloat16* wide, float* x) {
  int t = threadIdx.x;
  asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(((unsigned*)out)[t]) : "f"(x[2 * t + 1]), "f"(x[2 * t]));
  asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(((unsigned*)wide)[t]) : "f"(x[2 * t + 1]), "f"(x[2 * t]));
}
extern "C" __global__ void whole(int* out, int* a, int* b) {
  int t = threadIdx.x;
  out[t] = __dp4a(a[t], b[t], 7);
  asm volatile("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(out[32 + t]) : "r"(a[t]), "r"(b[t]), "r"(7));
  out[64 + t] = __popc(a[t]); out[96 + t] = __clz(a[t]); out[128 + t] = max(a[t], b[t]);
  out[160 + t] = __float_as_int(__int_as_float(a[t])); out[192 + t] = a[t] * b[t]; out[224 + t] = __mulhi(a[t], b[t]);
}
"""
    return Simulator(HEAD + "".join(map(conversions, DTYPES)) + functions + opcodes + others)


def same(got: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(got.astype(np.float64), wanted.astype(np.float64))


def every_value(dtype: Any) -> np.ndarray:
    return np.arange(65536, dtype=np.uint16).view(dtype)


@pytest.mark.parametrize("kind", DTYPES)
def test_each_value_is_a_float(simulator: Simulator, kind: str) -> None:
    x, out = every_value(DTYPES[kind]), np.zeros(65536, np.float32)
    simulator.launch(f"from_{kind}", [out, x], (256,), (256,))
    with np.errstate(invalid="ignore"):  # NaN that signal
        same(out, x)


@pytest.mark.parametrize("kind", DTYPES)
def test_floats_are_rounded_to_the_nearest(simulator: Simulator, kind: str) -> None:
    rng = np.random.default_rng(0)
    with np.errstate(invalid="ignore", over="ignore"):
        x = every_value(DTYPES[kind]).astype(np.float32)
        between = ((x[:-1].astype(float) + x[1:].astype(float)) / 2).astype(np.float32)  # ties
        near = np.nextafter(between, rng.choice([-np.inf, np.inf], between.shape)).astype(np.float32)
        bits = rng.integers(0, 2**32, 65538, dtype=np.uint32).view(np.float32)
        given = np.concatenate([x, between, near, bits])[: 4 * 65536]
        out = np.zeros(given.shape, DTYPES[kind])
        simulator.launch(f"to_{kind}", [out, given], (given.size // 256,), (256,))
        same(out, given.astype(DTYPES[kind]))


@pytest.mark.parametrize("kind", DTYPES)
def test_arithmetic_rounds_each_time(simulator: Simulator, kind: str) -> None:
    dtype, n = DTYPES[kind], 16384
    rng = np.random.default_rng(1)
    x, y = (rng.integers(0, 65536, n, dtype=np.uint16).view(dtype) for _ in range(2))
    out = np.zeros((10, n), dtype)
    simulator.launch(f"arithmetic_{kind}", [out, x, y, n], (n // 256,), (256,))
    with np.errstate(all="ignore"):
        a, b = x.astype(np.float64), y.astype(np.float64)
        sums = a + b
        for i, wanted in enumerate([sums, a - b, a * b, a / b]):
            same(out[i], wanted.astype(np.float32).astype(dtype))
        same(out[4], (a * b + a).astype(np.float32).astype(dtype))
        same(out[5], -x)
        np.testing.assert_allclose(
            out[6].astype(float), np.exp(x.astype(np.float32)).astype(dtype).astype(float), rtol=2.0**-7, atol=1e-7
        )
        same(out[7], np.fmax(a, b).astype(dtype))
        same(out[8], sums.astype(np.float32).astype(dtype))
        same(out[9], (a < b).astype(float) + (x == x).astype(float))


@pytest.mark.parametrize(("letter", "table"), [("f", FLOATS), ("p", PTX)])
def test_functions(simulator: Simulator, letter: str, table: dict[str, Any]) -> None:
    x = np.abs(np.random.default_rng(2).standard_normal(256)).astype(np.float32) + np.float32(0.01)
    for i, function in enumerate(table.values()):
        out = np.zeros_like(x)
        simulator.launch(f"{letter}{i}", [out, x], (1,), (256,))
        np.testing.assert_allclose(out, function(x), rtol=1e-6)


def test_tf32_rounds_ties_away_from_zero(simulator: Simulator) -> None:
    x = np.random.default_rng(3).standard_normal(256).astype(np.float32)
    x[:4] = [1 + 2.0**-11, -1 - 2.0**-11, 1 + 2.0**-12, np.inf]
    out = np.zeros(256, np.uint32)
    simulator.launch("tf32", [out, x], (1,), (256,))
    rounded = out.view(np.float32)
    assert rounded[:4].tolist() == [1 + 2.0**-10, -1 - 2.0**-10, 1.0, np.inf]
    assert (out & 0x1FFF == 0).all()
    assert (np.abs(rounded[4:] - x[4:]) <= np.abs(x[4:]) * 2.0**-11).all()


def test_pairs_have_the_first_number_above(simulator: Simulator) -> None:
    x = np.random.default_rng(5).standard_normal(64).astype(np.float32)
    out, wide = np.zeros(64, np.float16), np.zeros(64, ml_dtypes.bfloat16)
    simulator.launch("pairs", [out, wide, x], (1,), (32,))
    same(out, x.astype(np.float16))
    same(wide, x.astype(ml_dtypes.bfloat16))


def test_integers(simulator: Simulator) -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-(2**31), 2**31, 32, dtype=np.int64).astype(np.int32) for _ in range(2))
    out = np.zeros((8, 32), np.int32)
    simulator.launch("whole", [out, a, b], (1,), (32,))
    a8, b8 = a.view(np.int8).reshape(32, 4).astype(int), b.view(np.int8).reshape(32, 4).astype(int)
    wide = a.astype(np.int64) * b.astype(np.int64)
    unsigned = a.view(np.uint32)
    wanted = [
        7 + (a8 * b8).sum(1),
        7 + (a8 % 256 * b8).sum(1),
        [int(v).bit_count() for v in unsigned],
        [32 - int(v).bit_length() for v in unsigned],
        np.maximum(a, b),
        a,
        wide.astype(np.int32),
        (wide >> 32).astype(np.int32),
    ]
    np.testing.assert_array_equal(out, np.array(wanted, dtype=np.int32))
