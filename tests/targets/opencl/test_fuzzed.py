"""Random programs through the OpenCL target, planned as if images were everything, and run: the same numbers.

Those of the package's generator have all kinds of ops and types, but rarely what is worth an image; those made here are
small networks that have little else.
"""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from compare import machine
from effort import tries
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from targets.device_networks import network, plain
from targets.opencl.running import ADRENO, compiled, images, results
from targets.opencl.running import check as run

from eqsat_layout.errors import LayoutError
from eqsat_layout.soundness.programs.adversarial_costs import AdversarialCosts
from eqsat_layout.soundness.programs.check import SIZES, difference_up_to_order
from eqsat_layout.soundness.programs.choices import Choices
from eqsat_layout.soundness.programs.generator import RandomProgram, make_program
from eqsat_layout.targets.opencl.policies import ALL_IMAGES
from eqsat_layout.targets.opencl.target import OpenClTarget
from eqsat_layout.targets.registry import target
from eqsat_layout.validation.inputs import arrays_in, random_inputs
from eqsat_layout.validation.results import public_functions

POCL = {"kind": "opencl", "profile": "pocl"}


def check(made: RandomProgram, seed: int) -> Any:
    """The compiled program; ``None`` where its layouts are refused, or stock TVM can't build it for the CPU."""
    own = target(POCL)
    assert isinstance(own, OpenClTarget)
    options = made.options if seed % 3 == 0 else made.options | {"cost_model": ALL_IMAGES.costs(own)}
    try:
        found = compiled(made.module, POCL, **options)
        on_cpu = machine(made.module)
    except (LayoutError, tvm.error.InternalError):
        return None
    for name, function in public_functions(made.module):
        for size in SIZES:
            inputs = random_inputs(function, size, seed)
            expected = list(arrays_in(on_cpu[name](*inputs)))
            for a, b in zip(expected, results(found, list(map(plain, inputs)), name), strict=True):
                assert not difference_up_to_order(a, b, approx=True), made.text()
    return found


@pytest.mark.parametrize("part", range(2))
def test_random_programs_give_the_same_numbers(part: int) -> None:
    """The same programs every time."""
    found = [check(make_program(Choices.of_seed(seed), known_sizes=True), seed) for seed in range(part, tries(30), 2)]
    assert 3 * sum(one is not None for one in found) > 2 * len(found)


@pytest.mark.parametrize("part", range(2))
def test_random_networks_give_the_same_numbers_in_images(part: int) -> None:
    own = target(ADRENO)
    assert isinstance(own, OpenClTarget)
    found = []
    for seed in range(part * 4, part * 4 + 4):
        costs = AdversarialCosts(seed) if seed % 4 == 3 else ALL_IMAGES.costs(own)
        found.append(images(run(network(seed), ADRENO, approx=False, cost_model=costs)))
    assert sum(map(bool, found)) >= 2


@settings(max_examples=tries(6), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_generated_programs_give_the_same_numbers(data: st.DataObject) -> None:
    """Shrunk where one fails; new ones with ``--hypothesis-profile=new``."""
    check(make_program(Choices(lambda n: data.draw(st.integers(0, n - 1))), known_sizes=True), seed=1)


def test_a_tensor_without_elements_is_no_work() -> None:
    """Number 132 once divided by the extent of such an axis."""
    assert check(make_program(Choices.of_seed(132), known_sizes=True), 132) is not None
