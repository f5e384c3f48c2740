"""Memories of the host plan that several tensors share: no two that are needed at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from programs import program
from targets.device_cases import SIZE, conv, nn
from targets.opencl.running import check
from tvm.relax import op

from eqsat_layout.targets.gpu.host.plan import (
    Allocation,
    Argument,
    HostFunction,
    HostPlan,
    Launch,
    StoredConstant,
    TensorInMemory,
)
from eqsat_layout.targets.gpu.host.reuse import with_shared_memories

_KINDS = [Allocation(64), Allocation(128), Allocation(["mul", "s0", 4]), Allocation(64, (1, 2, 2), "float32")]


@st.composite
def plans(draw: Any) -> HostPlan:
    """Each launch writes its last argument, a memory of its own, and reads some that were written before."""
    count = draw(st.integers(1, 12))
    memories = [
        Allocation(64),
        Allocation(64, None, "uint8", 0),
        *(draw(st.sampled_from(_KINDS)) for _ in range(count)),
    ]
    launches = []
    for number in range(2, count + 2):
        read = draw(st.lists(st.integers(0, number - 1), min_size=1, max_size=3))
        arguments = tuple(Argument(memory=m) for m in (*read, number))
        launches.append(Launch("k", "op", arguments, (1, 1, 1), (1, 1, 1)))
    results = draw(st.lists(st.integers(0, count + 1), min_size=1, max_size=3))
    values = tuple(TensorInMemory((16,), "float32", "global", number) for number in range(count + 2))
    function = HostFunction("main", (0,), ("x",), (), tuple(launches), list(results))
    return HostPlan(tuple(memories), values, (StoredConstant(0, 64),), (function,))


def run(plan: HostPlan) -> list[int]:
    """What the results hold: every launch writes a number made of what it reads."""
    memories: dict[int, int] = {
        n: -1 - (m.constant or 0) for n, m in enumerate(plan.memories) if m.constant is not None
    }
    (function,) = plan.functions
    memories[plan.values[function.inputs[0]].memory] = -7
    for time, launch in enumerate(function.launches):
        *read, written = [a.memory for a in launch.arguments if a.memory is not None]
        memories[written] = hash((time, *(memories.get(m, 0) for m in read)))
    return [memories.get(plan.values[number].memory, 0) for number in function.results]


@given(plans())
def test_shared_memories_hold_the_same_results(plan: HostPlan) -> None:
    shared = with_shared_memories(plan)
    assert run(shared) == run(plan)
    assert len(shared.memories) <= len(plan.memories)
    for before, after in zip(plan.values, shared.values, strict=True):
        have, wanted = shared.memories[after.memory], plan.memories[before.memory]
        assert (have.image, have.constant) == (wanted.image, wanted.constant)
        if isinstance(wanted.bytes, int):
            assert have.bytes >= wanted.bytes
        else:
            assert have.bytes == wanted.bytes


def test_a_deep_chain_needs_the_memory_of_few_tensors() -> None:
    def body(builder: Any, x: Any) -> Any:
        for seed in range(8):
            x = builder.emit(op.add(x, builder.emit(nn.relu(conv(builder, x, seed % 2)))))
        return x

    found = check(program(body, SIZE))
    tensor = int(np.prod(SIZE)) * 4
    constants = sum(constant.size for constant in found.plan.constants)
    assert found.plan.bytes <= constants + 6 * tensor
