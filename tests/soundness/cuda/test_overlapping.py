"""Launches that overlap with those before them: what may be touched before the wait."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat_layout.soundness.cuda import KernelFault, Simulator

WAIT = 'asm volatile("griddepcontrol.wait;" : : : "memory");'
KERNELS = {
    "waits_first": f"{WAIT} out[t] = x[t];",
    "reads_first": f"float own = x[t]; {WAIT} out[t] = own;",
    "writes_first": f"out[t] = x[t]; {WAIT}",
    "some_wait": f"if (t < 32) {WAIT} out[t] = x[t];",
    "none_waits": "if (t > 64) out[t] = x[t];",
}


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    head = 'extern "C" __global__ void __launch_bounds__(64) {}({}) {{ int t = threadIdx.x; {} }}\n'
    kernels = [head.format(name, "float* out, float* x", body) for name, body in KERNELS.items()]
    restricted = head.format("restricted", "float* out, float* __restrict__ x", KERNELS["waits_first"])
    return Simulator("".join([*kernels, restricted]))


def launch(simulator: Simulator, name: str, settled: set[int] | None) -> frozenset[int]:
    arrays = [np.zeros(64, "float32"), np.ones(64, "float32")]
    return simulator.launch(name, arrays, (1,), (64,), settled=settled).written


@pytest.mark.parametrize("name", [*KERNELS, "restricted"])
def test_alone_all_is_right(simulator: Simulator, name: str) -> None:
    assert launch(simulator, name, None) == (frozenset() if name == "none_waits" else {0})


@pytest.mark.parametrize(
    ("name", "settled", "why"),
    [
        ("reads_first", {0}, "reads global memory, .* has not waited"),
        ("writes_first", {0, 1}, "writes global memory, .* has not waited"),
        ("some_wait", {0, 1}, "writes global memory, .* has not waited"),
        ("none_waits", {0, 1}, "none of 64 threads waits"),
        ("restricted", {0}, "argument 1 is __restrict__"),
    ],
)
def test_what_is_touched_too_early(simulator: Simulator, name: str, settled: set[int], why: str) -> None:
    with pytest.raises(KernelFault, match=why) as found:
        launch(simulator, name, settled)
    assert found.value.kind == "race"


@pytest.mark.parametrize(("name", "settled"), [("waits_first", set()), ("reads_first", {1}), ("restricted", {1})])
def test_what_waits_or_is_settled_is_right(simulator: Simulator, name: str, settled: set[int]) -> None:
    assert launch(simulator, name, settled) == {0}
