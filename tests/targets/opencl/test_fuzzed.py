"""Random programs through the OpenCL target, planned as if images were everything, and run: the same numbers.

Those of the package's generator have all kinds of ops and types, but rarely what is worth an image; those made here are
small networks that have little else.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from compare import machine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import program
from targets.device_cases import conv, nn
from targets.opencl.running import ADRENO, compiled, images, results
from targets.opencl.running import check as run
from tvm.relax import op

from eqsat_layout.errors import LayoutError
from eqsat_layout.soundness.programs.adversarial_costs import AdversarialCosts
from eqsat_layout.soundness.programs.check import SIZES, difference
from eqsat_layout.soundness.programs.choices import Choices
from eqsat_layout.soundness.programs.generator import RandomProgram, make_program
from eqsat_layout.targets.opencl.policies import ALL_IMAGES
from eqsat_layout.targets.opencl.target import OpenClTarget
from eqsat_layout.targets.registry import target
from eqsat_layout.validation.inputs import flat, random_inputs
from eqsat_layout.validation.results import public_functions

POCL = {"kind": "opencl", "profile": "pocl"}


def check(made: RandomProgram, seed: int) -> Any:
    """The compiled program; ``None`` where its layouts are refused."""
    own = target(POCL)
    assert isinstance(own, OpenClTarget)
    options = made.options if seed % 3 == 0 else made.options | {"cost_model": ALL_IMAGES.costs(own)}
    try:
        found = compiled(made.module, POCL, **options)
    except LayoutError:
        return None
    on_cpu = machine(made.module)
    for name, function in public_functions(made.module):
        for size in SIZES:
            inputs = random_inputs(function, size, seed)
            expected = list(flat(on_cpu[name](*inputs)))
            for a, b in zip(expected, results(found, list(map(plain, inputs)), name), strict=True):
                assert not difference(a, b, approx=True), made.text()
    return found


def plain(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else [plain(field) for field in value]


@pytest.mark.parametrize("part", range(3))
def test_random_programs_give_the_same_numbers(part: int) -> None:
    """The same programs every time."""
    found = [check(make_program(Choices.of_seed(seed)), seed) for seed in range(part * 15, part * 15 + 15)]
    assert sum(one is not None for one in found) > 10


def network(seed: int) -> Any:
    """Convolutions of all kinds, and what stands between them, over tensors that are read several times."""
    random = Random(seed)

    def body(builder: Any, x: Any, y: Any) -> Any:
        values = [x, y, conv(builder, x, seed, 8)]
        for step in range(random.randint(3, 7)):
            last = values[-1] if random.random() < 0.8 else random.choice(values)
            values.append(emitted(builder, random, last, values, seed * 10 + step))
        return values[-1] if random.random() < 0.7 else (values[-2], values[-1])

    return program(body, *[(random.choice((1, 2)), random.choice((4, 8, 12)), 9, 7)] * 2)


def emitted(builder: Any, random: Random, x: Any, values: list[Any], seed: int) -> Any:
    shape = [int(extent) for extent in x.ty.shape.values]
    channels, alike = shape[1], [v for v in values if list(v.ty.shape.values) == list(x.ty.shape.values)]
    kind = random.choice(("conv", "conv", "conv", "depthwise", "relu", "add", "concat", "pool", "mean", "slice"))
    if kind == "conv":
        size, stride = random.choice((1, 3)), random.choice((1, 1, 2))
        return conv(builder, x, seed, random.choice((4, 6, 8, 16)), size, strides=stride)
    if kind == "depthwise":
        return conv(builder, x, seed, channels, 3, groups=channels)
    if kind == "add":
        return builder.emit(op.add(x, random.choice(alike)))
    if kind == "concat":
        return builder.emit(op.concat([x, random.choice(alike)], axis=1))
    if kind == "pool":
        return builder.emit(nn.max_pool2d(x, [3, 3], padding=[1, 1]))
    if kind == "mean":
        return builder.emit(op.multiply(x, builder.emit(op.mean(x, axis=[2, 3], keepdims=True))))
    if kind == "slice" and channels > 4:
        return builder.emit(op.strided_slice(x, [1], [random.choice((2, 4))], [channels]))
    return builder.emit(nn.relu(x))


@pytest.mark.parametrize("part", range(3))
def test_random_networks_give_the_same_numbers_in_images(part: int) -> None:
    own = target(ADRENO)
    assert isinstance(own, OpenClTarget)
    found = []
    for seed in range(part * 4, part * 4 + 4):
        costs = AdversarialCosts(seed) if seed % 4 == 3 else ALL_IMAGES.costs(own)
        found.append(images(run(network(seed), ADRENO, approx=False, cost_model=costs)))
    assert sum(map(bool, found)) >= 2


@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_generated_programs_give_the_same_numbers(data: st.DataObject) -> None:
    """New programs every time, shrunk where one fails."""
    check(make_program(Choices(lambda n: data.draw(st.integers(0, n - 1)))), seed=1)


def test_a_tensor_without_elements_is_no_work() -> None:
    """Number 132 once divided by the extent of such an axis."""
    assert check(make_program(Choices.of_seed(132)), 132) is not None
