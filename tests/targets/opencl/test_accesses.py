"""What kernels may read and write as images, and which padding is free, each read off its TIR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import constant, program
from tvm import relax
from tvm.relax import op
from tvm.script import tirx as T

from eqsat_layout.graph.graph import Signature
from eqsat_layout.graph.importer import import_module
from eqsat_layout.maps import Format, index_map_from_names
from eqsat_layout.targets.opencl.free_padding import has_guards
from eqsat_layout.targets.opencl.images import NHWC, TEXTURE
from eqsat_layout.targets.opencl.profiles import PROFILES
from eqsat_layout.targets.opencl.target import OpenClTarget
from eqsat_layout.targets.opencl.traffic import traffic_of
from eqsat_layout.targets.registry import target
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.signature import analyse

nn = op.nn
SHAPE = (1, 32, 14, 14)


def adreno() -> OpenClTarget:
    found = target({"kind": "opencl", "device": "adreno"})
    assert isinstance(found, OpenClTarget)
    return found


def signature(emit: Any, *shapes: tuple[int, ...]) -> Signature:
    """Of the one op that ``emit`` makes."""
    read = import_module(program(lambda builder, *xs: builder.emit(emit(*xs)), *shapes))
    (found,) = read.signatures.values()
    assert found.computation is not None
    return found


def image(shape: tuple[int, ...], layout: str = "NCHW4c", scope: str = TEXTURE) -> Format:
    index_map = index_map_from_names("NCHW", layout, shape)
    assert index_map is not None
    placed = adreno().memories[scope].placed(Format.make(index_map), "float32")
    assert placed is not None
    return placed


def reads(computation: Computation, fmt: Format, operand: int = 0) -> str | None:
    return adreno().reads(computation, computation.operands[operand], fmt)


def writes(computation: Computation, fmt: Format) -> str | None:
    return adreno().writes(computation, computation.results[0], fmt)


@pytest.mark.parametrize(
    "emit",
    [
        lambda x: nn.relu(x),
        lambda x: nn.max_pool2d(x, (3, 3), padding=1),
        lambda x: nn.conv2d(x, constant(32, 32, 3, 3), padding=1),
        lambda x: nn.conv2d(x, constant(32, 32, 3, 3), padding=2, dilation=2, strides=2),
        lambda x: nn.conv2d(x, constant(32, 1, 3, 3), padding=1, groups=32),
        lambda x: op.strided_slice(x, [1], [8], [24]),
        lambda x: op.take(x, relax.const(np.array([3, 1])), axis=2),
        lambda x: op.sum(x, axis=[1], keepdims=True),
        lambda x: op.image.resize2d(x, (28, 28), layout="NCHW", method="nearest_neighbor"),
    ],
    ids=["relu", "pool", "conv", "dilated", "depthwise", "slice", "gather of rows", "sum of channels", "resize"],
)
def test_whole_texels_are_read(emit: Any) -> None:
    computation = signature(emit, SHAPE).computation
    assert computation is not None
    assert reads(computation, image(SHAPE)) is None


@pytest.mark.parametrize(
    ("emit", "reason"),
    [
        (lambda x: op.strided_slice(x, [1], [2], [30]), "across the borders"),
        (lambda x: op.strided_slice(x, [1], [0], [32], [2]), "gaps|borders"),
        (lambda x: op.take(x, relax.const(np.arange(32)[::-1].copy()), axis=1), "not known before"),
        (lambda x: op.strided_slice(x, [1], [4], [5]), "at one element|borders"),
        (lambda x: op.flip(x, axis=1), "borders|gaps"),
    ],
    ids=["slice across", "every second", "gather of channels", "one channel", "reversed"],
)
def test_parts_of_texels_are_not_read(emit: Any, reason: str) -> None:
    computation = signature(emit, SHAPE).computation
    assert computation is not None
    said = reads(computation, image(SHAPE))
    assert said is not None
    assert any(part in said for part in reason.split("|")), said


def test_whole_texels_are_written() -> None:
    for emit in (nn.relu, lambda x: nn.conv2d(x, constant(32, 32, 3, 3), padding=1), lambda x: nn.softmax(x, axis=1)):
        computation = signature(emit, SHAPE).computation
        assert computation is not None
        assert writes(computation, image(SHAPE)) is None


def test_scattered_writes_are_not_to_images() -> None:
    @T.prim_func(private=True, s_tir=True)
    def scatter(
        x: T.Buffer((1, 32, 4, 4), "float32"), p: T.Buffer((4,), "int64"), y: T.Buffer((1, 32, 4, 4), "float32")
    ) -> None:
        for i, j, k, n in T.grid(1, 32, 4, 4):
            with T.sblock("y"):
                a, b, c, d = T.axis.remap("SSSS", [i, j, k, n])
                y[a, b, p[c], d] = x[a, b, c, d]

    computation = analyse(scatter)
    if computation is not None:  # else it is opaque, and all its buffers are global
        assert writes(computation, image((1, 32, 4, 4))) is not None


def test_what_a_kernel_reads_again_is_not_written_to_an_image() -> None:
    @T.prim_func(private=True, s_tir=True)
    def twice(
        x: T.Buffer((1, 32, 4, 4), "float32"),
        y: T.Buffer((1, 32, 4, 4), "float32"),
        z: T.Buffer((1, 32, 4, 4), "float32"),
    ) -> None:
        for i, j, k, n in T.grid(1, 32, 4, 4):
            with T.sblock("y"):
                a, b, c, d = T.axis.remap("SSSS", [i, j, k, n])
                y[a, b, c, d] = x[a, b, c, d] * T.float32(2)
        for i, j, k, n in T.grid(1, 32, 4, 4):
            with T.sblock("z"):
                a, b, c, d = T.axis.remap("SSSS", [i, j, k, n])
                z[a, b, c, d] = y[a, b, c, d] + T.float32(1)

    computation = analyse(twice)
    assert computation is not None
    y, z = computation.results
    assert adreno().writes(computation, y, image((1, 32, 4, 4))) == "the kernel reads what it writes"
    assert adreno().writes(computation, z, image((1, 32, 4, 4))) is None


def padded(emit: Any, fmt: Format, profile: str = "adreno6xx") -> bool:
    """Whether the kernel has to guard its reads of the data."""
    computation = signature(emit, SHAPE).computation
    assert computation is not None
    return has_guards(computation, [fmt, *[None] * (len(computation.operands) - 1)], PROFILES[profile])


def test_zero_padding_is_free_where_the_sampler_gives_zero() -> None:
    def conv(x: Any) -> Any:
        return nn.conv2d(x, constant(32, 32, 3, 3), padding=1)

    assert not padded(conv, image(SHAPE))
    assert padded(conv, image(SHAPE, "NHWC4c", NHWC)), "columns share their axis with channels"
    assert padded(conv, Format.row_major(SHAPE))


def test_padding_with_something_else_is_not_free() -> None:
    assert padded(lambda x: nn.max_pool2d(x, (3, 3), padding=1), image(SHAPE))
    assert padded(lambda x: nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], pad_value=1.0), image(SHAPE))


def test_an_image_is_loaded_as_often_as_a_buffer_but_comes_from_beyond_less_often() -> None:
    """Of a 3x3 window per channel each element is asked for nine times."""
    op_ = signature(lambda x: nn.conv2d(x, constant(32, 1, 3, 3), padding=1, groups=32), SHAPE)
    weight, flat = Format.row_major((32, 1, 3, 3)), Format.row_major(SHAPE)
    in_image = traffic_of(op_, [image(SHAPE), weight], [flat], PROFILES["adreno6xx"])
    in_buffer = traffic_of(op_, [flat, weight], [flat], PROFILES["adreno6xx"])
    elements = flat.elements() * 4
    assert in_image.loads_of_images == 9 * elements
    assert elements <= in_image.images < 2 * elements
    assert in_buffer.buffers - in_image.buffers >= 9 * elements
    on_mali = traffic_of(op_, [flat, weight], [flat], PROFILES["mali"])
    assert on_mali.buffers < in_buffer.buffers / 3
