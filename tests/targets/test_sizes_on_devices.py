"""What the host of a device does beside launches: it chooses by shapes, and checks what is said of its arrays."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from compare import assert_close, machine
from effort import but_for
from programs import constant
from targets.cuda.simulating import CUDA
from targets.opencl.running import ADRENO, context
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R

import eqsat_layout
from eqsat_layout.errors import InputError, TargetError
from eqsat_layout.soundness.cuda.driver import simulated
from eqsat_layout.targets.cuda.host.executable import CudaProgram
from eqsat_layout.targets.gpu.host.plan import HostPlan

TARGETS = {"cuda": CUDA, "opencl": ADRENO}
SIZES = {"x": ((1, 4), None, (6, 4), None)}
RANGES = {"x": (range(1, 5), None, 6, None)}


def convolved(result_first: bool = False) -> Any:
    """Of n images of h times 6; ``result_first``: the image itself is the first of two results."""
    n, h = tirx.Var("n", "int64"), tirx.Var("h", "int64")
    x = relax.Var("x", relax.TensorType((n, 16, h, 6), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(x, constant(32, 16, 3, 3), padding=1))))
            y = builder.emit(op.mean(y, axis=[2, 3]))
            made = builder.emit(op.matmul(y, constant(32, 16)))
            output = builder.emit_output(relax.Tuple([x, made]) if result_first else made)
        builder.emit_func_output(output)
    return builder.get()


def running(program: Any) -> Any:
    return simulated(program) if isinstance(program, CudaProgram) else program.on(context())


@pytest.mark.parametrize("kind", but_for(TARGETS, ["cuda"]))  # they have one host
def test_the_host_takes_what_was_made_for_the_sizes_that_it_is_given(kind: str) -> None:
    """Several sizes were refused: "a program for a device can't hold the branch"."""
    mod = convolved()
    program, on_cpu = eqsat_layout.compile(mod, TARGETS[kind], shapes=SIZES), machine(mod)
    (function,) = program.plan.functions
    assert len(function.variants) == 4
    assert all(not variant.symbols for variant in function.variants)
    device = running(program)
    rng = np.random.default_rng(0)
    for n, h in ((4, 6), (1, 4), (3, 6), (4, 6), (1, 6), (2, 5)):
        x = rng.standard_normal((n, 16, h, 6)).astype("float32")
        before = device.launched
        assert_close(on_cpu["main"](x).numpy(), device(x))
        fitting = [v for v in function.variants if (n, h) in ((1, 6), (4, 6), (1, 4), (4, 4))] or [function]
        assert device.launched - before in {len(one.launches) for one in fitting}


def test_kernels_run_on_tensor_cores_for_known_sizes_and_for_others() -> None:
    program = eqsat_layout.compile(convolved(), CUDA, shapes=RANGES)
    (function,) = program.plan.functions
    assert len(function.variants) == 3

    def on_tensor_cores(one: Any) -> int:
        return sum("mma" in program.sources[launch.kernel] for launch in one.launches)

    assert on_tensor_cores(function) == 2
    assert all(on_tensor_cores(variant) == 2 for variant in function.variants)


def test_each_of_the_sizes_is_a_graph_of_its_own() -> None:
    device = simulated(eqsat_layout.compile(convolved(), CUDA, shapes=RANGES))
    for n in (4, 1, 4, 3):
        device(np.ones((n, 16, 6, 6), "float32"))
    assert len(device._graphs) == 2


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_an_input_that_is_a_result_too(target: Any) -> None:
    device = running(
        eqsat_layout.compile(convolved(result_first=True), target, shapes={"x": (range(2, 4), None, 6, None)})
    )
    for n in (2, 3):
        x = np.full((n, 16, 6, 6), n, "float32")
        same, made = device(x)
        np.testing.assert_array_equal(same, x)
        assert made.shape == (n, 16)


def test_a_plan_of_variants_is_read_back() -> None:
    plan = eqsat_layout.compile(convolved(), CUDA, shapes=RANGES).plan
    assert HostPlan.from_data(json.loads(json.dumps(plan.to_data()))) == plan


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_what_a_cast_says_is_checked(target: Any) -> None:
    """A cast to another size was ignored: kernels read what the sizes of the cast say."""
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    x = relax.Var("x", relax.TensorType((n, 8), "float32"))
    y = relax.Var("y", relax.TensorType((m, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        total = builder.emit(op.exp(builder.emit(op.concat([x, y], axis=0))))
        known = builder.match_cast(total, relax.TensorType((7, 8), "float32"))
        builder.emit_func_output(builder.emit(op.nn.relu(known)))
    device = running(eqsat_layout.compile(builder.get(), target))
    ones = np.ones((9, 8), "float32")
    np.testing.assert_allclose(device(ones[:3], ones[:4]), np.exp(ones[:7]), rtol=1e-6)
    with pytest.raises(InputError, match="is 8, but the program says that it is 7"):
        device(ones[:4], ones[:4])


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_reshapes_that_do_not_fit_are_errors(target: Any) -> None:
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_output(op.exp(builder.emit(op.reshape(x, (6, 2)))))
        builder.emit_func_output(made)
    device = running(eqsat_layout.compile(builder.get(), target))
    ones = np.ones((5, 4), "float32")
    np.testing.assert_allclose(device(ones[:3]), np.exp(np.ones((6, 2))), rtol=1e-6)
    with pytest.raises(InputError, match=r"a size, .*, is 8, but the program says that it is 0"):
        device(ones)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_assertions_are_checked(target: Any) -> None:
    """``torch.export`` writes them where an op takes numbers up to a limit: "no kernel does" ``assert_op``."""

    @I.ir_module
    class Asserted:
        @R.function(pure=False)
        def main(x: R.Tensor((3, 8), "float32")) -> R.Tensor((3, 8), "float32"):
            is_small = R.less(R.max(x), R.const(9.0, "float32"))
            _ = R.assert_op(is_small, format="large numbers")
            return R.exp(x)

    device = running(eqsat_layout.compile(Asserted, target))
    ones = np.ones((3, 8), "float32")
    for _ in range(2):
        np.testing.assert_allclose(device(ones), np.exp(ones), rtol=1e-6)
        with pytest.raises(InputError, match="main: large numbers"):
            device(10 * ones)


def test_sizes_that_the_data_say_are_refused_by_the_name_of_the_op() -> None:
    """The error named what TVM makes of the op: "relax.call_pure_packed, which no kernel does"."""

    def program(name: str) -> Any:
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((1, 8, 4), "float32"))
        with builder.function("main", [x]):
            scores = builder.emit(op.permute_dims(x, [0, 2, 1]))
            number, share = relax.const(3, "int64"), relax.const(0.5, "float32")
            made = {
                "nonzero": lambda: op.nonzero(x),
                "unique": lambda: op.unique(x),
                "all_class_non_max_suppression": lambda: op.vision.all_class_non_max_suppression(
                    x, scores, number, share, share
                ),
            }
            builder.emit_func_output(builder.emit(made[name]()))
        return builder.get()

    for name in ("nonzero", "unique", "all_class_non_max_suppression"):
        for target in TARGETS.values():
            with pytest.raises(TargetError, match=rf"{name}\b.*knows all sizes before it launches"):
                eqsat_layout.compile(program(name), target)
