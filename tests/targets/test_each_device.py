"""Programs that run on every device: what its language lacks or says otherwise than the CPU does."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compare import inputs_for, machine
from programs import program
from targets.device_cases import (
    ROWS,
    attention,
    check_bounds,
    check_sorts,
    first_layer,
    functions,
    narrow_arithmetic,
    nn,
    odd_names,
    of_symbolic_size,
    scaled_exactly,
    scatters,
    sorts,
    sorts_inside,
)
from targets.devices import Device, each_device

from eqsat_layout.validation.inputs import arrays_in

pytestmark = each_device


def test_the_first_layer_of_a_network(device: Device) -> None:
    device.check(program(first_layer, (1, 3, 16, 16)), **device.orders)


@pytest.mark.parametrize("emit", ROWS.values(), ids=ROWS)
def test_rows(device: Device, emit: Any) -> None:
    device.check(program(lambda builder, x: builder.emit(nn.relu(builder.emit(emit(x)))), (2, 24, 64)), **device.orders)


def test_attention(device: Device) -> None:
    device.check(program(attention, *[(2, 4, 16, 16)] * 3))


@pytest.mark.parametrize("axis", ["n", "h"])
def test_sizes_that_are_known_at_run_time_only(device: Device, axis: str) -> None:
    device.check(of_symbolic_size(axis), sizes=(1, 5))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_narrow_integers_wrap_around(device: Device, dtype: str) -> None:
    """C computes them in 32 bits: a difference of bytes that was compared was negative once."""
    device.check(program(narrow_arithmetic, (70,), (70,), dtype=dtype))


def test_functions_have_the_names_of_the_language(device: Device) -> None:
    """OpenCL C has no atanf, which TVM writes."""
    device.check(program(functions, (70,)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_are_said_in_all_their_digits(device: Device, dtype: str) -> None:
    """TVM writes seven in OpenCL C, and doubles with fifteen places after the dot in CUDA: small ones became 0."""
    mod = program(scaled_exactly, (70,), dtype=dtype)
    inputs = inputs_for(mod["main"], 1)
    expected = arrays_in(machine(mod)["main"](*inputs))
    for a, b in zip(expected, device.run(mod, [one.numpy() for one in inputs]), strict=True):
        np.testing.assert_array_equal(b, a)


def test_sorts(device: Device) -> None:
    device.check(program(sorts, (5, 40)), **device.orders)


def test_sorts_of_what_is_no_number(device: Device) -> None:
    """Elements had one place then, others none: what was gathered lay behind the tensor."""
    check_sorts(device.run)


def test_kernels_that_sort(device: Device) -> None:
    """No device can call a sort of the host: they were refused, and the whole program with them."""
    device.check(program(sorts_inside, (4, 42)), **device.orders)


def test_scatters(device: Device) -> None:
    """They were done by one thread."""
    notes: list[str] = []
    device.check(program(scatters, (12, 5)), **device.orders, notes=notes)
    assert not [note for note in notes if "runs in one" in note]


def test_kernels_may_have_any_name(device: Device) -> None:
    """PoCL ended the process at one of more than 255 characters: groups are called by all that is in them."""
    device.check(odd_names())


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_bounds_of_what_is_no_number(device: Device, dtype: Any) -> None:
    """The second operand, as on the CPU; C's functions take the other one. Of bfloat16, constants did not compile for
    CUDA, and a NaN that OpenCL C names was rounded to -0."""
    check_bounds(device.run, dtype)
