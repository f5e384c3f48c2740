"""Programs that really run: seed by seed, every kind of op between convolutions that read and write images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compare import inputs_for, machine
from effort import but_for, some
from programs import constant, program
from targets.device_cases import (
    AROUND_CONVOLUTIONS,
    SIZE,
    chain,
    concat,
    conv,
    half_functions,
    nn,
    one_primfunc_twice,
)
from targets.opencl.running import ADRENO, check, compiled, context, images, launches, results
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import tirx as T

from eqsat_layout.errors import TargetError
from eqsat_layout.models import resnet50
from eqsat_layout.targets.opencl.policies import ALL_IMAGES, BUFFERS, Policy
from eqsat_layout.targets.opencl.target import OpenClTarget
from eqsat_layout.targets.registry import target
from eqsat_layout.validation.inputs import arrays_in


def image_costs() -> Any:
    """Under which a tensor is an image wherever it can be one."""
    own = target(ADRENO)
    assert isinstance(own, OpenClTarget)
    return ALL_IMAGES.costs(own)


def test_pocl_is_installed_and_has_images() -> None:
    """It comes with the dependency group ``test``: nothing in this folder is skipped without it."""
    device = context().devices[0]
    assert device.image_support
    assert device.image_max_array_size >= 1


def test_a_chain_runs_in_images_with_its_epilogues_fused() -> None:
    found = check(program(chain, SIZE))
    assert images(found) >= 4
    assert len(launches(found)) <= 6


def test_three_readers_share_one_copy() -> None:
    def body(builder: Any, x: Any) -> Any:
        a, b, c = (conv(builder, x, seed) for seed in range(3))
        return builder.emit(op.multiply(builder.emit(op.multiply(a, b)), c))  # their sum would be one convolution

    found = check(program(body, SIZE))
    (function,) = found.plan.functions
    (given,) = (found.plan.values[number].memory for number in function.inputs)
    readers = [launch for launch in function.launches if given in {a.memory for a in launch.arguments}]
    assert len(readers) == 1
    assert "rewrite" in readers[0].op
    assert images(found)


def test_arguments_of_one_kernel_lie_in_different_memories() -> None:
    found = check(program(chain, SIZE))
    kinds = [
        {found.plan.memories[a.memory].image is None for a in launch.arguments if a.memory is not None}
        for function in found.plan.functions
        for launch in function.launches
    ]
    assert {True, False} in kinds


def test_one_primfunc_under_two_scopes_becomes_two() -> None:
    found = check(program(one_primfunc_twice(SIZE[-1]), SIZE))
    assert len({name for name in launches(found) if "scaled" in name}) == 2


@pytest.mark.parametrize("name", some(AROUND_CONVOLUTIONS, 3))  # test_every_kernel.py has these ops in images too
def test_ops_around_convolutions(name: str) -> None:
    """Planned as if images were everything: for so small ones the model finds buffers as good."""
    found = check(program(AROUND_CONVOLUTIONS[name], SIZE), cost_model=image_costs())
    assert images(found)


def test_concat_writes_an_image() -> None:
    assert images(check(program(concat, SIZE, SIZE))) >= 3


def test_concat_across_texels_goes_through_buffers() -> None:
    def body(builder: Any, x: Any, y: Any) -> Any:
        return conv(builder, builder.emit(op.concat([builder.emit(nn.relu(x)), builder.emit(nn.relu(y))], axis=1)), 2)

    check(program(body, (1, 30, 14, 14), (1, 34, 14, 14)))


@pytest.mark.parametrize("rank", [3, 4, 5, 6])
def test_every_rank(rank: int) -> None:
    def body(builder: Any, x: Any) -> Any:
        if rank == 3:
            y = builder.emit(nn.gelu(builder.emit(op.matmul(x, constant(256, 256)))))
            return builder.emit(op.matmul(y, constant(256, 256, seed=1)))
        if rank == 4:
            return chain(builder, x)
        if rank == 5:
            weight = constant(32, 32, 3, 3, 3)
            y = builder.emit(nn.relu(builder.emit(nn.conv3d(x, weight, padding=1))))
            return builder.emit(nn.conv3d(y, weight, padding=1))
        return builder.emit(op.permute_dims(builder.emit(nn.relu(x)), [5, 4, 3, 2, 1, 0]))

    shape = {3: (2, 32, 256), 4: SIZE, 5: (1, 32, 6, 6, 6), 6: (2, 3, 4, 5, 6, 8)}[rank]
    assert bool(images(check(program(body, shape)))) == (rank != 6)


def test_an_opaque_kernel_reads_and_writes_buffers() -> None:
    @T.prim_func(private=True, s_tir=True)
    def opaque(x: T.Buffer((1, 32, 14, 14), "float32"), y: T.Buffer((1, 32, 14, 14), "float32")) -> None:
        for i in range(6272):
            with T.sblock("o"):
                j = T.axis.opaque(6272, i)
                T.reads(x[0:1, 0:32, 0:14, 0:14], y[0:1, 0:32, 0:14, 0:14])
                T.writes(y[0:1, 0:32, 0:14, 0:14])
                k: T.let = j * 5 % 6272
                y[0, k // 196, k % 196 // 14, k % 14] = x[0, 31 - k // 196, k % 196 // 14, k % 14] + T.if_then_else(
                    j > 0, y[0, 0, 0, 0] * T.float32(0.5), T.float32(0.0)
                )

    def body(builder: Any, x: Any) -> Any:
        func = builder.add_func(opaque, "opaque")
        y = builder.emit(relax.call_tir(func, [conv(builder, x)], relax.TensorType(SIZE, "float32")))
        return conv(builder, y, 1)

    notes: list[str] = []
    found = check(program(body, SIZE), notes=notes, cost_model=image_costs())
    assert images(found)
    assert any("opaque runs in one work item" in note for note in notes)


def test_rows_of_unknown_number_are_added_to_what_follows_a_product() -> None:
    """TVM asked the number for its sign in the midst of a statement; the device's compiler refused that."""

    def body(builder: Any, x: Any) -> Any:
        return builder.emit(op.add(builder.emit(op.matmul(x, constant(1, 32, 32))), x))

    check(program(body, (1, tirx.Var("s", "int64"), 32)), sizes=(1, 9))


def test_a_copy_of_half_an_unknown_extent_is_given_the_symbol() -> None:
    """Of ``h // 2`` rows only: no buffer of its kernel says what ``h`` is."""

    def body(builder: Any, x: Any) -> Any:
        pooled = builder.emit(nn.max_pool2d(conv(builder, x, channels=8), [2, 2], strides=[2, 2]))
        return builder.emit(op.mean(pooled, axis=[2, 3]))

    check(program(body, (1, 12, tirx.Var("h", "int64"), 10)), sizes=(7,), cost_model=image_costs())


def test_constants_of_one_shape_are_told_apart() -> None:
    """Once they were known by the addresses of objects that were gone."""

    def body(builder: Any, x: Any) -> Any:
        for seed in range(6):
            x = builder.emit(op.add(builder.emit(op.multiply(x, constant(8, seed=seed))), constant(8, seed=seed + 50)))
        return x

    check(program(body, (3, 8)))


def test_two_floats_are_no_texel() -> None:
    """A row of two floats has 64 bits, and once was taken for a texel, which was then stored in halves."""
    check(program(lambda builder, x: conv(builder, conv(builder, x, 1, size=1), 2, channels=2, size=1), (1, 4, 2, 2)))


@pytest.mark.parametrize("policy", [BUFFERS, ALL_IMAGES], ids=["buffers", "images"])
def test_halves_are_computed_in_single_precision_where_there_is_no_half(policy: Policy) -> None:
    """PoCL has no arithmetic for them; images of halves are read as floats, buffers by conversion."""

    def body(builder: Any, x: Any) -> Any:
        for seed in range(2):
            weight = constant(32, 32, 3, 3, seed=seed, dtype="float16")
            x = builder.emit(nn.relu(builder.emit(nn.conv2d(x, weight, padding=1))))
        return x

    pocl = {"kind": "opencl", "profile": "pocl"}
    own = target(pocl)
    assert isinstance(own, OpenClTarget)
    found = check(program(body, SIZE, dtype="float16"), pocl, cost_model=policy.costs(own))
    assert {m.dtype for m in found.plan.memories if m.image is not None} == ({"float16"} if policy.scopes else set())
    assert "cl_khr_fp16" not in found.source


@pytest.mark.parametrize("policy", but_for([ALL_IMAGES, BUFFERS], [BUFFERS]), ids=lambda policy: policy.name)
def test_a_whole_network_in_half_precision(policy: Policy) -> None:
    mod = resnet50(image=32, width=16, blocks=(1, 1), classes=10)
    pocl = {"kind": "opencl", "profile": "pocl"}
    own = target(pocl)
    assert isinstance(own, OpenClTarget)
    found = compiled(mod, pocl, cost_model=policy.costs(own), precision="float16")
    inputs = inputs_for(mod["main"], 1)
    (expected,) = arrays_in(machine(mod)["main"](*inputs))
    (got,) = results(found, [one.numpy() for one in inputs])
    np.testing.assert_allclose(got, expected, atol=5e-3 * np.abs(expected).max())
    assert {memory.dtype for memory in found.plan.memories} >= {"float16"}
    assert bool(images(found)) == bool(policy.scopes)


@pytest.mark.parametrize("emit", [nn.softmax, lambda x: op.cumsum(x, axis=1), lambda x: op.astype(x, "float32")])
def test_halves_in_rows(emit: Any) -> None:
    mod = program(lambda builder, x: builder.emit(emit(x)), (2, 6, 8), dtype="float16")
    check(mod, {"kind": "opencl", "profile": "pocl"})


def test_a_whole_residual_network_in_images() -> None:
    found = check(resnet50(image=32, width=8, blocks=(1, 1, 1, 1)))
    assert images(found) >= 8


def test_a_kernel_that_the_device_refuses_is_named() -> None:
    """All kernels are one program, whose error may be anybody's."""
    found = compiled(program(chain, SIZE))
    name = list(found.sources)[-1]
    spoiled = replace(found, sources={**found.sources, name: found.sources[name].replace("{", "{ nowhere();", 1)})
    assert len(found.sources) > 1
    with pytest.raises(TargetError, match=f"kernel {name} is refused by the device's compiler"):
        spoiled.on(context())


def test_winograd_in_images_and_not_where_results_are_to_be_exact() -> None:
    """A convolution with so many channels that fewer products are worth the transforms."""
    mod = program(lambda builder, x: builder.emit(nn.relu(conv(builder, x, channels=64))), (1, 64, 56, 56))
    found = check(mod)
    assert any("winograd" in name for name in launches(found))
    assert images(found)
    assert not any("winograd" in name for name in launches(check(mod, approx=False)))


@pytest.mark.parametrize("profile", ["adreno5xx", "mali", "powervr", "buffer_only", "pocl"])
def test_programs_for_every_profile_run(profile: str) -> None:
    def body(builder: Any, x: Any) -> Any:
        return builder.emit(nn.softmax(conv(builder, builder.emit(nn.relu(conv(builder, x))), 1), axis=1))

    found = check(program(body, SIZE), {"kind": "opencl", "profile": profile})
    assert bool(images(found)) <= (profile not in ("buffer_only", "pocl"))


def test_functions_of_halves() -> None:
    """CUDA C++ has no hnearbyint, which TVM writes, nor a remainder of halves."""
    check(program(half_functions, (70,), dtype="float16"), {"kind": "opencl", "profile": "pocl"})


def test_bits_of_a_bfloat16_constant() -> None:
    """A running product that begins with 1: TVM writes the address of the constant, which OpenCL C refuses."""
    found = compiled(
        program(lambda builder, x: builder.emit(op.cumprod(x, 1, exclusive=True)), (2, 3), dtype="bfloat16")
    )
    (halves,) = results(found, [np.full((2, 3), 0.5, ml_dtypes.bfloat16)])
    assert halves.tolist() == [[1, 0.5, 0.25]] * 2
