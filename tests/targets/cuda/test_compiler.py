"""The compiler of kernels: its words, and what it spills of its own accord."""

from __future__ import annotations

import pytest
from targets.cuda.running import needs_compiler

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.cuda.compiler import compiled

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
