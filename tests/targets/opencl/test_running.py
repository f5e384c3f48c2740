"""Programs that really run: seed by seed, every kind of op between convolutions that read and write images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import constant, program
from targets.opencl.running import SIZE, check, context, conv, images, launches, nn
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import tirx as T

from eqsat_layout.models import resnet50
from eqsat_layout.targets.opencl.policies import ALL_IMAGES, BUFFERS, Policy
from eqsat_layout.targets.opencl.target import OpenClTarget
from eqsat_layout.targets.registry import target

Body = Callable[..., Any]


def test_pocl_is_installed_and_has_images() -> None:
    """It comes with the dependency group ``test``: nothing in this folder is skipped without it."""
    device = context().devices[0]
    assert device.image_support
    assert device.image_max_array_size >= 1


def chain(builder: Any, x: Any) -> Any:
    for seed in range(3):
        x = builder.emit(nn.relu(conv(builder, x, seed)))
    return x


def test_a_chain_runs_in_images_with_its_epilogues_fused() -> None:
    found = check(program(chain, SIZE))
    assert images(found) >= 4
    assert len(launches(found)) <= 6


def test_three_readers_share_one_copy() -> None:
    def body(builder: Any, x: Any) -> Any:
        a, b, c = (conv(builder, x, seed) for seed in range(3))
        return builder.emit(op.add(builder.emit(op.add(a, b)), c))

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
    @T.prim_func(private=True, s_tir=True)
    def scaled(x: T.Buffer((1, 32, 14, 14), "float32"), y: T.Buffer((1, 32, 14, 14), "float32")) -> None:
        for i, j, k, n in T.grid(1, 32, 14, 14):
            with T.sblock("y"):
                a, b, c, d = T.axis.remap("SSSS", [i, j, k, n])
                y[a, b, c, d] = x[a, b, c, d] * T.float32(2)

    def body(builder: Any, x: Any) -> Any:
        func = builder.add_func(scaled, "scaled")
        ty = relax.TensorType(SIZE, "float32")
        y = builder.emit(relax.call_tir(func, [conv(builder, x)], ty))
        return builder.emit(relax.call_tir(func, [conv(builder, y, 1)], ty))

    found = check(program(body, SIZE))
    assert len({name for name in launches(found) if "scaled" in name}) == 2


def concat(builder: Any, x: Any, y: Any) -> Any:
    a, b = (builder.emit(nn.relu(conv(builder, v, i))) for i, v in enumerate((x, y)))
    return conv(builder, builder.emit(op.concat([a, b], axis=1)), 2)


def split(builder: Any, x: Any) -> Any:
    y = builder.emit(nn.relu(conv(builder, x, channels=64)))
    parts = builder.emit(op.split(y, 2, axis=1))
    first, second = (builder.emit(relax.TupleGetItem(parts, i)) for i in range(2))
    return builder.emit(op.add(conv(builder, first, 1), second))


def several_results(builder: Any, x: Any) -> Any:
    y = builder.emit(nn.relu(conv(builder, x)))
    return y, conv(builder, y, 1)


def inline_constants(builder: Any, x: Any) -> Any:
    y = builder.emit(op.add(conv(builder, x), constant(1, 32, 1, 1)))
    return conv(builder, builder.emit(op.multiply(y, relax.const(np.float32(2)))), 1)


def mean(builder: Any, x: Any) -> Any:
    return builder.emit(op.mean(builder.emit(nn.relu(conv(builder, x))), axis=[2, 3], keepdims=True))


def strided(builder: Any, x: Any) -> Any:
    return conv(builder, builder.emit(nn.relu(conv(builder, x, strides=2))), 1, dilation=2)


def depthwise(builder: Any, x: Any) -> Any:
    return conv(builder, builder.emit(op.clip(conv(builder, x, groups=32), 0, 6)), 1, size=1)


def grouped(builder: Any, x: Any) -> Any:
    return conv(builder, builder.emit(nn.relu(conv(builder, x, groups=4))), 1)


def transposed(builder: Any, x: Any) -> Any:
    y = builder.emit(nn.relu(conv(builder, x)))
    return builder.emit(nn.relu(builder.emit(nn.conv2d_transpose(y, constant(32, 16, 2, 2), strides=2))))


def pools(builder: Any, x: Any) -> Any:
    y = builder.emit(nn.max_pool2d(conv(builder, x), [3, 3], strides=[2, 2], padding=[1, 1]))
    return conv(builder, builder.emit(nn.avg_pool2d(y, [2, 2])), 1)


def resized(method: str) -> Body:
    def body(builder: Any, x: Any) -> Any:
        y = op.image.resize2d(conv(builder, x), (28, 28), layout="NCHW", method=method)
        return conv(builder, builder.emit(y), 1)

    return body


def batch_norm(builder: Any, x: Any) -> Any:
    spread = relax.const(np.linspace(0.5, 2, 32).astype("float32"))
    y = nn.batch_norm(conv(builder, x), constant(32), constant(32, seed=1), constant(32, seed=2), spread, axis=1)
    return builder.emit(nn.relu(builder.emit(relax.TupleGetItem(builder.emit(y), 0))))


def group_norm(builder: Any, x: Any) -> Any:
    scale, shift = constant(32), constant(32, seed=3)
    y = nn.group_norm(conv(builder, x), scale, shift, num_groups=4, channel_axis=1, axes=[2, 3])
    return conv(builder, builder.emit(y), 1)


def where(builder: Any, x: Any) -> Any:
    y = conv(builder, x)
    small = builder.emit(op.multiply(y, relax.const(np.float32(0.1))))
    return conv(builder, builder.emit(op.where(builder.emit(op.greater(y, relax.const(np.float32(0)))), y, small)), 1)


def gathered(builder: Any, x: Any) -> Any:
    order = relax.const(np.arange(32)[::-1].copy())
    return conv(builder, builder.emit(op.take(builder.emit(nn.relu(x)), order, axis=1)))


def padded(builder: Any, x: Any) -> Any:
    return conv(builder, builder.emit(nn.pad(conv(builder, x), [0, 0, 0, 0, 1, 1, 2, 2])), 1)


def sliced(builder: Any, x: Any) -> Any:
    return conv(builder, builder.emit(op.strided_slice(conv(builder, x), [1], [8], [24])), 1)


def flattened(builder: Any, x: Any) -> Any:
    return builder.emit(op.matmul(builder.emit(op.reshape(conv(builder, x), (1, 32, 196))), constant(196, 64)))


def first_layer(builder: Any, x: Any) -> Any:
    return conv(builder, builder.emit(nn.relu(conv(builder, x, strides=2, size=7))), 1)


def of_conv(make: Callable[[Any], Any]) -> Body:
    return lambda builder, x: builder.emit(make(conv(builder, x)))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(body, id=name)
        for name, body in {
            "split": split,
            "several_results": several_results,
            "inline_constants": inline_constants,
            "mean": mean,
            "strided": strided,
            "depthwise": depthwise,
            "grouped": grouped,
            "transposed": transposed,
            "pools": pools,
            "resized": resized("nearest_neighbor"),
            "resized_linearly": resized("linear"),
            "batch_norm": batch_norm,
            "group_norm": group_norm,
            "where": where,
            "gathered": gathered,
            "padded": padded,
            "sliced": sliced,
            "flattened": flattened,
            "cumsum": of_conv(lambda y: op.cumsum(y, axis=1)),
            "argmax": of_conv(lambda y: op.argmax(y, axis=1)),
            "truth": of_conv(lambda y: op.greater(y, relax.const(np.float32(0)))),
            "integers": of_conv(lambda y: op.astype(y, "int32")),
            "sum_of_all": of_conv(lambda y: op.sum(y)),
        }.items()
    ],
)
def test_ops_around_convolutions(body: Body) -> None:
    found = check(program(body, SIZE))
    assert images(found)


def test_concat_writes_an_image() -> None:
    assert images(check(program(concat, SIZE, SIZE))) >= 3


def test_concat_across_texels_goes_through_buffers() -> None:
    def body(builder: Any, x: Any, y: Any) -> Any:
        return conv(builder, builder.emit(op.concat([builder.emit(nn.relu(x)), builder.emit(nn.relu(y))], axis=1)), 2)

    check(program(body, (1, 30, 14, 14), (1, 34, 14, 14)))


def test_the_first_layer_of_a_network() -> None:
    check(program(first_layer, (1, 3, 16, 16)))


@pytest.mark.parametrize(
    "emit",
    [
        lambda x: nn.softmax(x),
        lambda x: nn.layer_norm(x, constant(64), constant(64, seed=1), axes=[-1]),
        lambda x: op.sum(x, axis=[-1], keepdims=True),
        lambda x: op.max(x, axis=[0, 2]),
        lambda x: nn.gelu(x),
    ],
    ids=["softmax", "layer_norm", "sum", "max", "gelu"],
)
def test_rows(emit: Any) -> None:
    check(program(lambda builder, x: builder.emit(nn.relu(builder.emit(emit(x)))), (2, 24, 64)))


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


def test_attention() -> None:
    def body(builder: Any, q: Any, k: Any, v: Any) -> Any:
        scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 1, 3, 2]))))
        scores = builder.emit(nn.softmax(builder.emit(op.multiply(scores, relax.const(np.float32(0.25))))))
        return builder.emit(op.matmul(scores, v))

    check(program(body, *[(2, 4, 16, 16)] * 3))


def test_an_opaque_kernel_reads_and_writes_buffers() -> None:
    @T.prim_func(private=True, s_tir=True)
    def opaque(x: T.Buffer((1, 32, 14, 14), "float32"), y: T.Buffer((1, 32, 14, 14), "float32")) -> None:
        for i in range(6272):
            with T.sblock("o"):
                j = T.axis.opaque(6272, i)
                T.reads(x[0:1, 0:32, 0:14, 0:14])
                T.writes(y[0:1, 0:32, 0:14, 0:14])
                y[0, j // 196, j % 196 // 14, j % 14] = x[0, 31 - j // 196, j % 196 // 14, j % 14]

    def body(builder: Any, x: Any) -> Any:
        func = builder.add_func(opaque, "opaque")
        y = builder.emit(relax.call_tir(func, [conv(builder, x)], relax.TensorType(SIZE, "float32")))
        return conv(builder, y, 1)

    notes: list[str] = []
    found = check(program(body, SIZE), notes=notes)
    assert images(found)
    assert any("opaque runs in one work item" in note for note in notes)


@pytest.mark.parametrize("axis", ["n", "h"])
def test_sizes_that_are_known_at_run_time_only(axis: str) -> None:
    size = tirx.Var(axis, "int64")
    shape = (size, 8, 6, 6) if axis == "n" else (1, 8, size, size)

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(nn.relu(conv(builder, x, channels=8)))
        return builder.emit(nn.softmax(conv(builder, y, 1, channels=8), axis=1))

    check(program(body, shape), sizes=(1, 5))


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


@pytest.mark.parametrize("emit", [nn.softmax, lambda x: op.cumsum(x, axis=1), lambda x: op.astype(x, "float32")])
def test_halves_in_rows(emit: Any) -> None:
    mod = program(lambda builder, x: builder.emit(emit(x)), (2, 6, 8), dtype="float16")
    check(mod, {"kind": "opencl", "profile": "pocl"})


def test_a_whole_residual_network_in_images() -> None:
    found = check(resnet50(image=32, width=8, blocks=(1, 1, 1, 1)))
    assert images(found) >= 8


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
