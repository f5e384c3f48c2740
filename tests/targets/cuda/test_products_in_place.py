"""Concatenation: products store their parts of the result, on the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import program
from targets.cuda.simulating import CUDA, check, compiled, launches
from tvm import relax
from tvm.relax import op

from eqsat_layout.errors import TargetError

Emit = Callable[..., Any]
LAST = {"data_layout": "NHWC", "kernel_layout": "OHWI"}


def conv(builder: Any, x: Any, channels: int, size: int = 1, seed: int = 0) -> Any:
    shape = (channels, size, size, int(x.ty.shape[3]))
    weight = relax.const(np.random.default_rng(seed).standard_normal(shape).astype(str(x.ty.dtype)) * 0.2)
    return builder.emit(op.nn.conv2d(x, weight, padding=size // 2, **LAST))


def together(*channels: int, axis: int = 3) -> Any:
    """Convolutions of so many channels, concatenated, and what follows."""

    def body(builder: Any, x: Any) -> Any:
        parts = [conv(builder, x, count, 1 + 2 * (i % 2), i) for i, count in enumerate(channels)]
        whole = builder.emit(op.concat(parts, axis=axis))
        return builder.emit(op.nn.relu(whole))

    return body


SHAPE = (1, 6, 6, 16)


def copies(made: Any) -> list[str]:
    return [name for name in launches(made) if "conv" not in name]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_nothing_is_copied(dtype: str, arch: str) -> None:
    made = check(program(together(16, 24, 8), SHAPE, dtype=dtype), {**CUDA, "arch": arch}, orders=(0, 2))
    assert len(launches(made)) == 3
    assert not copies(made)
    assert all("mma" in source for source in made.sources.values())


def test_what_is_no_product_is_copied_once() -> None:
    def body(builder: Any, x: Any) -> Any:
        first, last = conv(builder, x, 16), conv(builder, x, 24, 3)
        return builder.emit(op.nn.relu(builder.emit(op.concat([first, x, last], axis=3))))

    made = check(program(body, SHAPE))
    assert len(launches(made)) == 3
    (copy,) = copies(made)
    moved = next(one for one in made.plan.functions[0].launches if one.op == copy)
    assert moved.groups[0] * moved.items[0] * 4 <= 2 * 36 * 16, "it copies more than its part"


def test_what_begins_the_result_is_copied_too() -> None:
    """Its elements have the numbers that they had: TVM takes that for a view."""

    def body(builder: Any, x: Any) -> Any:
        return builder.emit(op.concat([x, conv(builder, x, 16)], axis=1))

    assert len(launches(check(program(body, SHAPE)))) == 2


def test_rows_put_together() -> None:
    made = check(program(together(16, 16, axis=1), SHAPE))
    assert not copies(made)


@pytest.mark.parametrize("channels", [(6, 10), (16, 3, 13)])
def test_parts_that_would_be_stored_bit_by_bit_are_copied(channels: tuple[int, ...]) -> None:
    made = check(program(together(*channels), SHAPE))
    assert len(launches(made)) == len(channels) + 1


def test_what_others_read_too_is_copied() -> None:
    def body(builder: Any, x: Any) -> Any:
        first, second = conv(builder, x, 16), conv(builder, x, 16, 3, 1)
        whole = builder.emit(op.concat([first, second], axis=3))
        return builder.emit(relax.Tuple([whole, builder.emit(op.exp(first))]))

    check(program(body, SHAPE), orders=(0, 1, 2))


def test_a_whole_that_is_put_into_another_one() -> None:
    def body(builder: Any, x: Any) -> Any:
        whole = together(16, 24)(builder, x)
        return builder.emit(op.concat([conv(builder, whole, 8), whole, conv(builder, whole, 16)], axis=3))

    check(program(body, SHAPE), orders=(0, 1, 2))


def test_sums_that_are_exact_stay_so() -> None:
    check(program(together(16, 24), SHAPE), approx=False)


def test_what_the_caller_gave_is_not_written_into() -> None:
    from tvm.script import tirx as T

    @T.prim_func(private=True, s_tir=True)
    def doubled(x: T.Buffer((8,), "float32")) -> None:
        for i in range(8):
            with T.sblock("x"):
                j = T.axis.spatial(8, i)
                x[j] = x[j] * T.float32(2)

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            called = builder.add_func(doubled, "doubled")
            output = builder.emit_output(relax.op.call_tir_inplace(called, (x,), 0, x.ty))
        builder.emit_func_output(output)
    with pytest.raises(TargetError, match="doubled writes into an input or a constant"):
        compiled(builder.get())
