"""Programs for CUDA that really run, on the simulator: every kind of op, in several orders of threads."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compare import inputs_for, machine
from effort import but_for
from programs import program
from targets.cuda.simulating import CUDA, check, compiled, launches
from targets.device_cases import (
    AROUND_CONVOLUTIONS,
    RECURRENCE,
    SIZE,
    chain,
    concat,
    half_functions,
    nn,
)
from targets.in_order import in_order
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from eqsat_layout.errors import TargetError
from eqsat_layout.soundness.cuda.driver import simulated
from eqsat_layout.validation.inputs import arrays_in


def test_epilogues_are_fused() -> None:
    assert len(launches(check(program(chain, SIZE), orders=(0, 1, 2)))) <= 6


ELSEWHERE = ["depthwise", "mean", "where", "batch_norm", "integers", "sliced"]
"""Window kernels, rows, random networks and epilogues have them on CUDA, too."""


@pytest.mark.parametrize("name", but_for(AROUND_CONVOLUTIONS, ELSEWHERE))
def test_ops_around_convolutions(name: str) -> None:
    check(program(AROUND_CONVOLUTIONS[name], SIZE), orders=(0, 1, 2))


def test_concat() -> None:
    check(program(concat, SIZE, SIZE))


def test_parts_of_a_sum_are_added_by_the_last_block_again_and_again() -> None:
    """Blocks that have come are counted from zero in each run, and in one memory for all kernels."""

    def body(builder: Any, x: Any) -> Any:
        rng = np.random.default_rng(0)
        weights = [relax.const(rng.standard_normal(shape).astype("float32") / 40) for shape in ((1600, 40), (40, 1600))]
        y = builder.emit(op.matmul(x, weights[0]))
        return builder.emit(op.matmul(builder.emit(op.matmul(y, weights[1])), weights[0]))

    made = check(program(body, (20, 1600)), orders=(0, 1, 2))
    assert len(launches(made)) == 3
    assert sum("atomicAdd" in source for source in made.sources.values()) >= 1
    assert sum(memory.zeros for memory in made.plan.memories) == 1
    device, x = simulated(made, 2), np.ones((20, 1600), "float32")
    (first,), (again,) = (arrays_in([device(x)]) for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_an_opaque_kernel_runs_in_one_thread() -> None:
    def body(builder: Any, x: Any) -> Any:
        func = builder.add_func(in_order, "opaque")
        y = relax.call_tir(func, [builder.emit(nn.relu(x))], relax.TensorType((64,), "float32"))
        return builder.emit(nn.relu(builder.emit(y)))

    notes: list[str] = []
    check(program(body, (64,)), notes=notes)
    assert any("opaque runs in one thread" in note for note in notes)


def test_a_step_of_a_recurrence_is_launched_stage_by_stage() -> None:
    """All steps were done by one thread."""
    notes: list[str] = []
    made = check(RECURRENCE, orders=(0, 1, 2), notes=notes)
    assert not [note for note in notes if "thread" in note]
    assert launches(made).count("lstm") > 4 * 4  # steps and stages


def test_what_is_exact_stays_so() -> None:
    check(program(chain, SIZE), approx=False)


def test_dtypes() -> None:
    def body(builder: Any, x: Any) -> Any:
        whole = builder.emit(op.astype(x, "int64"))
        return builder.emit(op.astype(builder.emit(op.add(whole, relax.const(3, "int64"))), "float16"))

    check(program(body, (5, 7)))


def test_a_branch_is_refused_by_its_condition() -> None:
    @I.ir_module
    class Branch:
        @R.function
        def main(x: R.Tensor((3, 4), "float32"), is_large: R.Tensor((), "bool")) -> R.Tensor((3, 4), "float32"):
            if is_large:  # noqa: SIM108 - TVMScript
                z = R.add(x, x)
            else:
                z = R.negative(x)
            return z

    @I.ir_module
    class Computed:
        @R.function
        def main(x: R.Tensor((3, 4), "float32")) -> R.Tensor((3, 4), "float32"):
            large = R.greater(R.sum(x), R.const(0.0, "float32"))
            if large:  # noqa: SIM108 - TVMScript
                z = R.add(x, x)
            else:
                z = R.negative(x)
            return z

    for mod, name in ((Branch, "is_large"), (Computed, "large")):
        with pytest.raises(
            TargetError, match=f"main: a program for a device can't hold the branch by {name}: its host"
        ):
            compiled(mod)


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(TargetError, match="'sm_61' is not known; there are sm_80"):
        compiled(program(chain, SIZE), {"kind": "cuda", "arch": "sm_61"})
    with pytest.raises(TargetError, match="'h100' is of architecture sm_90, not sm_80"):
        compiled(program(chain, SIZE), {**CUDA, "model": "h100"})


def test_pooling_of_regions_in_one_column() -> None:
    """Of a hidden comparison one side became narrower, and TVM refused to compare them."""
    regions = relax.const(np.array([[0, 0, 0, 0, 3], [1, 0, 2, 0, 5]], "float32"))
    check(program(lambda builder, x: builder.emit(op.vision.roi_pool(x, regions, (2, 2), 1.0)), (2, 3, 6, 1)))


def test_functions_of_halves() -> None:
    """CUDA C++ has no hnearbyint, which TVM writes, nor a remainder of halves."""
    check(program(half_functions, (70,), dtype="float16"))


def test_functions_of_bfloat16() -> None:
    """CUDA C++ has them for neither kind of halves. TVM has none of them for CPUs."""

    def body(builder: Any, x: Any, y: Any) -> Any:
        made = (op.round(x), op.cosh(x), op.sinh(x), op.asinh(x), op.acos(op.tanh(x)), op.atan2(x, y), op.mod(x, y))
        return tuple(builder.emit(builder.normalize(one)) for one in made)

    x, y = (np.random.default_rng(seed).standard_normal(70).astype(ml_dtypes.bfloat16) for seed in (0, 1))
    wide, other = x.astype("float32"), y.astype("float32")
    tanh = np.tanh(wide).astype(ml_dtypes.bfloat16).astype("float32")
    expected = [np.round(wide), np.cosh(wide), np.sinh(wide), np.arcsinh(wide), np.arccos(tanh)]
    expected += [np.arctan2(wide, other), np.fmod(wide, other)]
    got = simulated(compiled(program(body, (70,), (70,), dtype="bfloat16")))(x, y)
    for one, two in zip(arrays_in(got), expected, strict=True):
        np.testing.assert_allclose(one.astype("float32"), two, rtol=1e-2, atol=1e-2)


def quantised(builder: Any, x: Any) -> Any:
    """A convolution of bytes, requantised."""
    weight = relax.const(np.random.default_rng(0).integers(-128, 128, (24, 16, 3, 3)).astype("int8"))
    y = builder.emit(nn.conv2d(x, weight, padding=1, out_dtype="int32"))
    scaled = builder.emit(op.multiply(builder.emit(op.astype(y, "float32")), relax.const(np.float32(1 / 700))))
    return builder.emit(op.astype(builder.emit(op.clip(builder.emit(op.round(scaled)), -128, 127)), "int8"))


@pytest.mark.parametrize("approx", [True, False])
def test_bytes_on_tensor_cores(approx: bool) -> None:
    """They are exact, so they may be always."""
    made = check(program(quantised, (1, 16, 9, 8), dtype="int8"), approx=approx)
    assert sum(".s32.s8.s8.s32" in source for source in made.sources.values()) == 1


def test_bytes_without_a_sign_on_tensor_cores() -> None:
    """A machine has one figure for bytes."""

    def body(builder: Any, a: Any, b: Any) -> Any:
        return builder.emit(op.matmul(a, b, out_dtype="int32"))

    made = check(program(body, (37, 65), (65, 29), dtype="uint8"))
    assert sum(".s32.u8.u8.s32" in source for source in made.sources.values()) == 1


@pytest.mark.parametrize("order", ["data first", "weights first"])
def test_bytes_with_and_without_a_sign(order: str) -> None:
    """Quantised networks have data of the one kind and weights of the other; they ran on the ordinary units."""

    def body(builder: Any, a: Any) -> Any:
        weights = relax.const(np.random.default_rng(0).integers(-128, 128, (72, 65)).astype("int8"))
        data = builder.emit(op.permute_dims(a)) if order == "weights first" else a
        both = (weights, data) if order == "weights first" else (data, builder.emit(op.permute_dims(weights)))
        return builder.emit(op.matmul(*both, out_dtype="int32"))

    made = check(program(body, (37, 65), dtype="uint8"))
    assert sum(bool(re.search(r"\.s32\.(u8\.s8|s8\.u8)\.s32", source)) for source in made.sources.values()) == 1


@pytest.mark.parametrize(("dtype", "zero", "kinds"), [("int8", 0, "s8.s8"), ("uint8", 3, "s8.u8")])
def test_quantised_convolutions(dtype: str, zero: int, kinds: str) -> None:
    """They were computed in floats of what the bytes stand for."""

    def body(builder: Any, x: Any) -> Any:
        scale, nothing = relax.const(np.float32(0.05)), relax.const(np.array(zero, dtype))
        weights = relax.const(np.random.default_rng(0).integers(-128, 128, (24, 16, 3, 3)).astype("int8"))
        own = relax.const(np.float32(0.01)), relax.const(np.array(0, "int8"))
        q = builder.emit(op.quantize(x, scale, nothing, axis=1, out_dtype=dtype))
        data = builder.emit(op.dequantize(q, scale, nothing, axis=1, out_dtype="float32"))
        floats = builder.emit(op.dequantize(weights, *own, axis=0, out_dtype="float32"))
        return builder.emit(nn.relu(builder.emit(nn.conv2d(data, floats, padding=1))))

    made = check(program(body, (1, 16, 5, 6)))
    assert sum(f".s32.{kinds}.s32" in source for source in made.sources.values()) == 1


def normalised(builder: Any, *x: Any) -> Any:
    return builder.emit(nn.layer_norm(*x, axes=[-1]))


def test_what_tvm_has_no_kernel_for_is_named_with_its_reason() -> None:
    def of_instances(builder: Any, *x: Any) -> Any:
        return builder.emit(nn.instance_norm(*x, channel_axis=1, axes=[2]))

    with pytest.raises(TargetError, match=r"relax\.nn\.instance_norm, which no kernel does: TVM can't .*Float\(32\)"):
        compiled(program(of_instances, (4, 8, 10), (8,), (8,), dtype="int32"))


def test_what_tvm_refuses_of_bfloat16_is_computed_in_single_precision() -> None:
    """It has layer norms for no other floats than those of 32 bits and IEEE's of 16."""
    random = np.random.default_rng(0)
    x, scale, bias = (random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((4, 40), (40,), (40,)))
    (got,) = arrays_in(
        simulated(compiled(program(normalised, (4, 40), (40,), (40,), dtype="bfloat16")))(x, scale, bias)
    )
    wide = x.astype("float64")
    deviation = np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    expected = (wide - wide.mean(-1, keepdims=True)) / deviation * scale.astype("float64") + bias.astype("float64")
    np.testing.assert_allclose(got.astype("float64"), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_function_less_itself_is_no_number_where_it_is_none(dtype: str) -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.tanh(x))
        return builder.emit(op.subtract(y, y))

    x = np.array([1, np.nan, -2, np.nan], dtype)
    np.testing.assert_array_equal(simulated(compiled(program(body, (4,), dtype=dtype)))(x), [0, np.nan, 0, np.nan])


def test_an_index_may_be_a_float() -> None:
    """No compiler of C takes it as it is."""

    @T.prim_func(private=True, s_tir=True)
    def gather(x: T.Buffer((8,), "float32"), i: T.Buffer((5,), "float32"), y: T.Buffer((5,), "float32")):  # type: ignore[no-untyped-def]
        for axis in range(5):
            with T.sblock("gather"):
                v = T.axis.spatial(5, axis)
                y[v] = x[i[v]]

    builder = relax.BlockBuilder()
    x, i = (relax.Var(name, relax.TensorType((size,), "float32")) for name, size in (("x", 8), ("i", 5)))
    with builder.function("main", [x, i]):
        with builder.dataflow():
            called = relax.call_tir(
                builder.add_func(gather, "gather"), (x, i), out_ty=relax.TensorType((5,), "float32")
            )
            output = builder.emit_output(called)
        builder.emit_func_output(output)
    values, places = np.arange(8, dtype="float32"), np.array([7, 0, 3, 3, 1], "float32")
    np.testing.assert_array_equal(simulated(compiled(builder.get()))(values, places), [7, 0, 3, 3, 1])


def test_networks_in_bfloat16() -> None:
    """Products run on tensor cores, and results are as near as 8 bits of each operand let them be."""
    mod = program(chain, SIZE)
    program_of_halves = compiled(mod, precision="bfloat16")
    x = inputs_for(mod["main"], 1)[0]
    (expected,), (got,) = arrays_in(machine(mod)["main"](x)), arrays_in(simulated(program_of_halves, 2)(x.numpy()))
    assert "bf16.bf16.f32" in "".join(program_of_halves.sources.values())
    wide = expected.astype("float64")
    assert 0 < np.linalg.norm(got - wide) / np.linalg.norm(wide) < 2e-2
