"""Each fault that the simulator finds, planted, beside the kernel without it, which runs in every order."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from eqsat_layout.soundness.cuda import KernelFault, Simulator

THREADS = 64
COPY = (
    'asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: '
    '"r"((unsigned)__cvta_generic_to_shared(TO)), "l"(FROM));'
)
COMMIT = 'asm volatile("cp.async.commit_group;");'


def copy(to: str, source: str) -> str:
    return COPY.replace("TO", to).replace("FROM", source)


def wait(groups: int) -> str:
    return f'asm volatile("cp.async.wait_group {groups};");'


@dataclass(frozen=True)
class Planted:
    """``kind`` of the fault in ``bad``; ``good`` is the kernel as it should be.

    Both have ``float* out, float* x`` of 64 elements, ``t`` for the thread, ``b`` for the block, and shared ``s`` of 64
    floats, zeros where ``written``.
    """

    kind: str
    bad: str
    good: str
    blocks: int = 1
    written: bool = True


FAULTS = {
    "no barrier before a read": Planted(
        "race", "s[t] = x[t]; out[t] = s[t ^ 32];", "s[t] = x[t]; __syncthreads(); out[t] = s[t ^ 32];"
    ),
    "no barrier within a warp": Planted(
        "race", "s[t] = x[t]; out[t] = s[t ^ 1];", "s[t] = x[t]; __syncwarp(); out[t] = s[t ^ 1];"
    ),
    "a shuffle orders no memory": Planted(
        "race",
        "s[t] = x[t]; __shfl_xor_sync(0xffffffff, 1, 1); out[t] = s[t ^ 1];",
        "s[t] = x[t]; out[t] = __shfl_xor_sync(0xffffffff, x[t], 1);",
    ),
    "__syncwarp does for one warp only": Planted(
        "race", "s[t] = x[t]; __syncwarp(); out[t] = s[t ^ 32];", "s[t] = x[t]; __syncthreads(); out[t] = s[t ^ 32];"
    ),
    "no barrier before what was read is overwritten": Planted(
        "race",
        "s[t] = x[t]; __syncthreads(); out[t] = s[63 - t]; s[t] = 0;",
        "s[t] = x[t]; __syncthreads(); out[t] = s[63 - t]; __syncthreads(); s[t] = 0;",
    ),
    "what several threads read is overwritten by one of them": Planted(
        "race",
        "s[t] = x[t]; __syncthreads(); out[t] = s[0]; if (t == 0) s[0] = 1;",
        "s[t] = x[t]; __syncthreads(); out[t] = s[0]; __syncthreads(); if (t == 0) s[0] = 1;",
    ),
    "two threads write one place": Planted("race", "s[t / 2] = x[t];", "s[t] = x[t];"),
    "two threads write two halves of one place": Planted(
        "race", "((half*)s)[t / 2] = half(x[t]);", "((half*)s)[t] = half(x[t]);"
    ),
    "threads of two warps write one place of an argument": Planted("race", "out[t % 32] = x[t];", "out[t] = x[t];"),
    "blocks write one place": Planted("race", "out[t] = x[t];", "if (b == 0) out[t] = x[t];", blocks=2),
    "a block reads what another wrote": Planted(
        "race",
        "if (b == 0) out[t] = x[t]; else s[t] = out[t];",
        "if (b == 0) out[t] = x[t]; else s[t] = x[t];",
        blocks=2,
    ),
    "a block writes what two others read": Planted(
        "race", "s[t] = out[t]; if (b == 2) out[t] = x[t];", "s[t] = x[t]; if (b == 2) out[t] = x[t];", blocks=3
    ),
    "a sum without atomics": Planted("race", "out[0] += x[t];", "atomicAdd(out, x[t]);", blocks=2),
    "an atomic sum that is read at once": Planted(
        "race",
        "s[t] = 0; __syncthreads(); atomicAdd(s, x[t]); out[t] = s[0];",
        "s[t] = 0; __syncthreads(); atomicAdd(s, x[t]); __syncthreads(); out[t] = s[0];",
    ),
    "the last block takes sums without a fence": Planted(
        "race",
        "out[b] = 1; if (atomicAdd((int*)x, 1) == 1) s[0] = out[0] + out[1];".join(("if (t == 0) { ", " }")),
        "out[b] = 1; __threadfence(); if (atomicAdd((int*)x, 1) == 1) s[0] = out[0] + out[1];".join(
            ("if (t == 0) { ", " }")
        ),
        blocks=2,
    ),
    "a fence by another thread than the one that counts": Planted(
        "race",
        "if (t == 0) out[b] = 1; if (t == 1) __threadfence(); __syncthreads(); "
        "if (t == 0 && atomicAdd((int*)x, 1) == 1) s[0] = out[0] + out[1];",
        "if (t == 1) out[b] = 1; __syncthreads(); "
        "if (t == 0) { __threadfence(); if (atomicAdd((int*)x, 1) == 1) s[0] = out[0] + out[1]; }",
        blocks=2,
    ),
    "a barrier in one warp only": Planted("barrier", "if (t < 32) __syncthreads();", "__syncthreads();"),
    "two barriers of the two branches": Planted(
        "barrier", "if (t < 32) __syncthreads();\nelse __syncthreads();", "__syncthreads();"
    ),
    "a shuffle of half a warp with the mask of all": Planted(
        "convergence",
        "if (t % 32 < 16) out[t] = __shfl_xor_sync(0xffffffff, x[t], 1); __syncthreads();",
        "if (t % 32 < 16) out[t] = __shfl_xor_sync(0xffff, x[t], 1); __syncthreads();",
    ),
    "a lane outside of its mask": Planted(
        "convergence",
        "out[t] = __shfl_xor_sync(0xffff, x[t], 1);",
        "out[t] = __shfl_xor_sync(t % 32 < 16 ? 0xffff : 0xffff0000, x[t], 1);",
    ),
    "one shuffle for each branch": Planted(
        "convergence",
        "if (t % 2) out[t] = __shfl_sync(0xffffffff, x[t], 0);\nelse out[t] = __shfl_sync(0xffffffff, x[t], 1);",
        "out[t] = __shfl_sync(0xffffffff, x[t], t % 2);",
    ),
    "a copy that nobody waits for": Planted(
        "async",
        f"{copy('s + t', 'x + t')} {COMMIT} out[t] = s[t];",
        f"{copy('s + t', 'x + t')} {COMMIT} {wait(0)} out[t] = s[t];",
    ),
    "a wait for one group too few": Planted(
        "async",
        f"{copy('s + t', 'x + t')} {COMMIT} {wait(1)} __syncthreads(); out[t] = s[t ^ 1];",
        f"{copy('s + t', 'x + t')} {COMMIT} {COMMIT} {wait(1)} __syncthreads(); out[t] = s[t ^ 1];",
    ),
    "a wait for what is not committed": Planted(
        "async",
        f"{copy('s + t', 'x + t')} {wait(0)} __syncthreads(); out[t] = s[t];",
        f"{copy('s + t', 'x + t')} {COMMIT} {wait(0)} __syncthreads(); out[t] = s[t];",
    ),
    "a wait without a barrier after it": Planted(
        "race",
        f"{copy('s + t', 'x + t')} {COMMIT} {wait(0)} out[t] = s[t ^ 32];",
        f"{copy('s + t', 'x + t')} {COMMIT} {wait(0)} __syncthreads(); out[t] = s[t ^ 32];",
    ),
    "a copy over what others still read": Planted(
        "race or async",
        f"s[t] = 0; __syncthreads(); out[t] = s[t ^ 32]; {copy('s + t', 'x + t')} {COMMIT}",
        f"s[t] = 0; __syncthreads(); out[t] = s[t ^ 32]; __syncthreads(); {copy('s + t', 'x + t')} {COMMIT}",
    ),
    "an argument read past its end": Planted("range", "out[t] = x[t + 1];", "out[t] = x[t];"),
    "an argument read before its beginning": Planted("range", "out[t] = x[t - 1];", "out[t] = x[t ? t - 1 : 0];"),
    "an argument written past its end": Planted("range", "out[2 * t] = x[t];", "out[t] = x[t];"),
    "shared memory written past its end": Planted("range", "((float*)s)[t + 1] = x[t];", "((float*)s)[t] = x[t];"),
    "an index that leaves a local array": Planted(
        "range", "float a[4] = {}; out[t] = a[t];", "float a[4] = {}; out[t] = a[t % 4];"
    ),
    "a pointer to nothing": Planted("range", "out[t] = *(volatile float*)(size_t)t;", "out[t] = 0;"),
    "a vector at an odd place": Planted(
        "alignment",
        "if (t < 15) *(float4*)(out + 4 * t + 2) = make_float4(1, 2, 3, 4);",
        "if (t < 16) *(float4*)(out + 4 * t) = make_float4(1, 2, 3, 4);",
    ),
    "a vector read at an odd place": Planted(
        "alignment",
        "if (t < 31) { float2 v = *(float2*)(x + 2 * t + 1); out[t] = v.x + v.y; }",
        "if (t < 31) { float2 v = *(float2*)(x + 2 * t); out[t] = v.x + v.y; }",
    ),
    "shared memory that nobody has written": Planted(
        "unwritten", "out[t] = s[t];", "s[t] = 0; out[t] = s[t];", written=False
    ),
    "shared memory of the block before": Planted(
        "unwritten",
        "if (b == 0) s[t] = 1; __syncthreads(); if (b) out[t] = s[t];",
        "s[t] = 1; if (b) out[t] = s[t];",
        blocks=2,
        written=False,
    ),
    "an integer divided by zero": Planted("trap", "out[t] = 1 / t;", "out[t] = 1 / (t + 1);"),
    "the least integer divided by -1": Planted(
        "trap",
        "int least = t ? 1 : -0x7fffffff - 1; out[t] = least / (2 * t - 1);",
        "int most = 0x7fffffff; out[t] = (most + t) / (2 * t + 1);",  # which wraps around
    ),
    "a remainder of the least long integer and -1": Planted(
        "trap",
        "long long least = t ? 1 : -0x7fffffffffffffffll - 1; out[t] = least % (2 * t - 1);",
        "long long most = 0x7fffffffffffffffll; out[t] = (most * 2 + t) % (2 * t + 1);",
    ),
    "an assertion": Planted("trap", "assert(t < 63);", "assert(t < 64);"),
}


def kernel(name: str, planted: Planted, body: str) -> str:
    start = "s[t] = 0; __syncthreads();" if planted.written else ""
    return (
        f'extern "C" __global__ void __launch_bounds__({THREADS}) {name}(float* __restrict__ out, float* x) {{\n'
        f"  __shared__ alignas(64) float s[64]; int t = (int)threadIdx.x, b = (int)blockIdx.x; {start}\n"
        f"{body}\n}}\n"
    )


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    planted = FAULTS.values()
    return Simulator(
        "".join(kernel(f"bad{i}", p, p.bad) + kernel(f"good{i}", p, p.good) for i, p in enumerate(planted))
    )


def arrays() -> list[np.ndarray]:
    return [np.zeros(THREADS, "float32"), np.arange(THREADS, dtype="float32")]


@pytest.mark.parametrize("order", range(3))
@pytest.mark.parametrize("name", FAULTS)
def test_planted(simulator: Simulator, name: str, order: int) -> None:
    number, planted = list(FAULTS).index(name), FAULTS[name]
    simulator.launch(f"good{number}", arrays(), (planted.blocks,), (THREADS,), order=order)
    with pytest.raises(KernelFault) as found:
        simulator.launch(f"bad{number}", arrays(), (planted.blocks,), (THREADS,), order=order)
    assert found.value.kind in planted.kind.split(" or ")
    lines = simulator.source_lines
    first = lines.index(kernel(f"bad{number}", planted, planted.bad).splitlines()[0]) + 1
    assert first + 2 <= found.value.line <= first + 1 + len(planted.bad.splitlines())


def test_a_fault_names_kernel_thread_line_and_text(simulator: Simulator) -> None:
    number = list(FAULTS).index("an argument read past its end")
    with pytest.raises(
        KernelFault, match=r"(?s)kernel bad\d+, line \d+: thread \(63, 0, 0\) of block .*\n    out\[t\] = x"
    ):
        simulator.launch(f"bad{number}", arrays(), (1,), (THREADS,))


def test_a_launch_after_a_fault_is_a_new_one(simulator: Simulator) -> None:
    number = list(FAULTS).index("a barrier in one warp only")
    for _ in range(3):
        with pytest.raises(KernelFault):
            simulator.launch(f"bad{number}", arrays(), (1,), (THREADS,))
        simulator.launch(f"good{number}", arrays(), (1,), (THREADS,))


def test_a_simulator_that_is_alive_has_no_files(
    simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was killed while kernels ran left a folder with their library behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    again = Simulator("".join(f"{line}\n" for line in simulator.source_lines))
    assert not list(tmp_path.iterdir())
    number = list(FAULTS).index("no barrier before a read")
    with pytest.raises(KernelFault) as found:
        again.launch(f"bad{number}", arrays(), (1,), (THREADS,))
    assert found.value.line
    assert not list(tmp_path.iterdir())
