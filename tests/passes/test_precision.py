"""``precision=``: what is computed in halves, what is not, and what is no precision."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from compare import inputs_for, machine
from programs import constant, program
from tvm import relax, te
from tvm.relax import op

import eqsat_layout
from eqsat_layout.errors import EqsatError
from eqsat_layout.passes.precision import PRECISIONS, in_precision


def body(builder: Any, x: Any) -> Any:
    y = builder.emit(op.nn.conv2d(x, constant(16, 8, 3, 3), padding=1))
    y = builder.emit(op.nn.relu(builder.emit(op.add(y, constant(1, 16, 1, 1)))))
    return builder.emit(op.nn.softmax(y, axis=1))


SIZE = (1, 8, 10, 10)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_products_are_of_halves_and_sums_are_not(precision: str) -> None:
    text = in_precision(program(body, SIZE), precision)["main"].script()
    assert 'out_dtype="float32"' in text
    assert {word for word in re.findall(r'dtype="(\w+)"', text) if word != "float32"} == {precision}
    assert "softmax" in text.split("astype")[-1]


@pytest.mark.parametrize(("precision", "most"), [("float16", 5e-3), ("bfloat16", 5e-2)])
def test_inputs_and_results_keep_their_types_and_about_their_values(precision: str, most: float) -> None:
    mod = program(body, SIZE)
    inputs = inputs_for(mod["main"], 1)
    expected = machine(mod)["main"](*inputs).numpy()
    made = eqsat_layout.compile(mod, precision=precision)
    got = relax.VirtualMachine(made, tvm.cpu())["main"](*inputs).numpy()
    assert got.dtype == np.float32
    assert 0 < np.abs(got - expected).max() < most


def group_norm(builder: Any, y: Any) -> Any:
    return op.nn.group_norm(y, constant(16), constant(16), 4, 1, [2, 3])


def prelu(builder: Any, y: Any) -> Any:
    return op.nn.prelu(y, constant(16))


@pytest.mark.parametrize("made", [group_norm, prelu])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_ops_that_tvm_has_no_types_for_are_of_float32(made: Any, precision: str) -> None:
    """Group norms between products raised a TypeError of TVM's in bfloat16."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.conv2d(x, constant(16, 8, 3, 3), padding=1))
        return builder.emit(op.nn.conv2d(builder.emit(made(builder, y)), constant(8, 16, 1, 1)))

    mod = program(body, SIZE)
    inputs = inputs_for(mod["main"], 1)
    expected = machine(mod)["main"](*inputs).numpy()
    built = eqsat_layout.compile(mod, precision=precision)
    got = relax.VirtualMachine(built, tvm.cpu())["main"](*inputs).numpy()
    assert 0 < np.abs(got - expected).max() < 5e-2 * np.abs(expected).max()


def test_kernels_between_products_keep_their_types() -> None:
    """As readers write what Relax has no op for: indexing by tensors ended in a failed check of TVM's."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.conv2d(x, constant(8, 8, 1, 1)))
        turned = builder.emit_te(lambda a: te.compute(SIZE, lambda n, c, h, w: a[n, c, w, h] * 2, "turned"), y)
        return builder.emit(op.nn.conv2d(turned, constant(8, 8, 1, 1)))

    mod = program(body, SIZE)
    inputs = inputs_for(mod["main"], 1)
    built = eqsat_layout.compile(mod, precision="float16")
    got = relax.VirtualMachine(built, tvm.cpu())["main"](*inputs).numpy()
    expected = machine(mod)["main"](*inputs).numpy()
    assert 0 < np.abs(got - expected).max() < 1e-2 * np.abs(expected).max()


def test_what_is_said_of_the_module_is_kept() -> None:
    """Its attributes, and the memories that types name."""
    mod = program(body, SIZE).with_attr("said", "this")
    mod.update_global_info("vdevice", [relax.VDevice("llvm")])
    made = in_precision(mod, "float16")
    assert made.attrs["said"] == "this"
    assert list(made.global_infos["vdevice"]) == list(mod.global_infos["vdevice"])


def test_clips_between_products_are_of_halves_too() -> None:
    """TVM's ToMixedPrecision fails on their bounds, which are no tensors: no MobileNet could be converted."""

    def clipped(builder: Any, x: Any) -> Any:
        y = builder.emit(op.clip(builder.emit(op.nn.conv2d(x, constant(16, 8, 3, 3))), 0, 0.5))
        return builder.emit(op.nn.conv2d(y, constant(4, 16, 1, 1)))

    mod = program(clipped, SIZE)
    inputs = inputs_for(mod["main"], 1)
    expected = machine(mod)["main"](*inputs).numpy()
    got = machine(in_precision(mod, "float16"))["main"](*inputs).numpy()
    np.testing.assert_allclose(got, expected, atol=2e-2)
    (line,) = (line for line in in_precision(mod, "float16")["main"].script().splitlines() if "R.maximum" in line)
    assert "float16" in line


def test_a_precision_that_is_none() -> None:
    with pytest.raises(EqsatError, match="'float61' is not known; did you mean 'float16'"):
        eqsat_layout.plan(program(body, SIZE), precision="float61")


def test_two_precisions_of_16_bits_are_not_told_apart() -> None:
    def mixed(builder: Any, x: Any) -> Any:
        return body(builder, builder.emit(op.astype(builder.emit(op.astype(x, "float16")), "float32")))

    mod = program(mixed, SIZE)
    with pytest.raises(EqsatError, match="the module has float16 already"):
        in_precision(mod, "bfloat16")


def test_a_module_without_products_is_refused() -> None:
    mod = program(lambda builder, x: builder.emit(op.nn.relu(x)), SIZE)
    with pytest.raises(EqsatError, match="no product of float32"):
        eqsat_layout.optimize(mod, precision="float16")
