"""The compiler of kernels: its words, and what it spills of its own accord."""

from __future__ import annotations

from typing import Any

import pytest
from programs import program
from targets.cuda import simulating
from targets.cuda.running import needs_compiler
from targets.device_cases import SIZE, depthwise, sorts_inside
from tvm.relax import op

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.cuda.compiler import compiled, machine_code

HELD: int = 40
"""Numbers that a thread holds at once: too many for two blocks of 1,024 threads, which have 32 registers each."""

CROWDED: str = f"""
extern "C" __global__ void __launch_bounds__(1024, 2) crowded(const float* x, float* y) {{
  float held[{HELD}];
#pragma unroll
  for (int i = 0; i < {HELD}; ++i) held[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < {HELD}; ++i) y[({HELD} - i) * 1024 + threadIdx.x] = held[i];
}}
"""


@needs_compiler
def test_what_spills_is_compiled_for_fewer_blocks() -> None:
    (facts,) = compiled(CROWDED, "sm_90").kernels.values()
    assert facts.spilled_bytes == 0
    assert facts.registers > HELD, "it had no more than 32, and spilled"


@needs_compiler
def test_the_compilers_words_are_in_the_error() -> None:
    with pytest.raises(TargetError, match="nowhere"):
        compiled('extern "C" __global__ void kernel(float* x) { x[0] = nowhere; }', "sm_90")


def several(builder: Any, x: Any) -> Any:
    pooled = builder.emit(op.nn.max_pool2d(x, [3, 3], strides=[2, 2], padding=[1, 1]))
    large = builder.emit(op.image.resize2d(pooled, (14, 14), layout="NCHW", method="linear"))
    rows = builder.emit(op.permute_dims(x, [0, 2, 3, 1]))
    return large, rows, builder.emit(op.nn.softmax(rows)), builder.emit(op.cumsum(x, axis=1))


@needs_compiler
def test_kernels_that_multiply_nothing_spill_nothing() -> None:
    """Windows, pools, resizes, rows, scans, layout transforms, sorts, and blocks that share loops; in one text: what
    they include takes ten times as long as they do."""
    bodies = ((depthwise, SIZE), (several, SIZE), (sorts_inside, (4, 42)))
    built = [simulating.compiled(program(body, size)).sources for body, size in bodies]
    sources = [text for one in built for text in one.values() if "mma.sync" not in text]
    (made,) = machine_code(["\n".join(sources)], "sm_80")
    facts = made.kernels
    assert len(facts) == len(sources) > 12
    assert not {name: one.spilled_bytes for name, one in facts.items() if one.spilled_bytes}
