"""Random programs through the CUDA target, run on the simulator: the same numbers."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from compare import machine
from targets.cuda.simulating import CUDA, check, compiled
from targets.device_networks import network, plain

from eqsat_layout.errors import LayoutError
from eqsat_layout.soundness.cuda.driver import simulated
from eqsat_layout.soundness.programs.adversarial_costs import AdversarialCosts
from eqsat_layout.soundness.programs.check import SIZES, difference_up_to_order
from eqsat_layout.soundness.programs.choices import Choices
from eqsat_layout.soundness.programs.generator import make_program
from eqsat_layout.validation.inputs import arrays_in, random_inputs
from eqsat_layout.validation.results import public_functions


def target_of(seed: int) -> Any:
    """Every other one overlaps launches, and has groups of warps."""
    return {**CUDA, "arch": ("sm_80", "sm_90a")[seed % 2]}


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_give_the_same_numbers(seed: int) -> None:
    """The same programs every time."""
    made = make_program(Choices.of_seed(seed), known_sizes=True)
    try:
        program, on_cpu = compiled(made.module, target_of(seed), **made.options), machine(made.module)
    except (LayoutError, tvm.error.InternalError):  # stock TVM does not build all of them for the CPU
        return
    device = simulated(program, seed)
    for name, function in public_functions(made.module):
        for size in SIZES:
            inputs = random_inputs(function, size, seed)
            expected = list(arrays_in(on_cpu[name](*inputs)))
            got = list(arrays_in(device(*map(plain, inputs), entry=name)))
            for a, b in zip(expected, got, strict=True):
                assert not difference_up_to_order(a, b, approx=True), made.text()


@pytest.mark.parametrize("seed", range(4))
def test_random_networks_give_the_same_numbers(seed: int) -> None:
    """Layouts are those that costs at random like best."""
    check(network(seed), target_of(seed), cost_model=AdversarialCosts(seed), orders=(seed,))
