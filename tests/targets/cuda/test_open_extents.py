"""Kernels of tensors whose sizes are known at run time only: the same ones, of as many blocks as the host says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import but_for
from hypothesis import given
from hypothesis import strategies as st
from programs import constant
from targets.cuda.simulating import CUDA, check, launches
from tvm import relax, sym, tirx
from tvm.relax import op
from tvm.relax.op import nn

import eqsat_layout
from eqsat_layout.soundness.cuda.driver import simulated
from eqsat_layout.targets.cuda.kernels.extents import assumed, is_whole_tiles, product_of_extents, tiles_over
from eqsat_layout.targets.gpu.host.sizes import LARGEST, value_of
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.computation import SYMBOL_SIZE
from eqsat_layout.tir.structural import substitute


def program(shape: tuple[Any, ...], body: Any) -> Any:
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(body(builder, x))
        builder.emit_func_output(output)
    return builder.get()


def symbol(name: str) -> Any:
    return tirx.Var(name, "int64")


def convolutions(builder: Any, x: Any) -> Any:
    """The height of the second one is an expression of that of the first one."""
    y = builder.emit(nn.relu(nn.conv2d(x, constant(32, 32, 3, 3), strides=2, padding=1)))
    return builder.emit(op.add(builder.emit(nn.conv2d(y, constant(32, 32, 1, 1))), y))


def depthwise(builder: Any, x: Any) -> Any:
    return builder.emit(nn.conv2d(x, constant(8, 1, 3, 3), padding=1, groups=8))


def transformer(builder: Any, x: Any) -> Any:
    """A layer of two heads: attention over all tokens, and a norm of each."""
    batch, tokens, width = *list(x.ty.shape)[:2], 64

    def heads() -> Any:
        y = builder.emit(op.reshape(op.matmul(x, constant(width, width)), (batch, tokens, 2, width // 2)))
        return builder.emit(op.permute_dims(y, [0, 2, 1, 3]))

    scores = builder.emit(nn.softmax(op.matmul(heads(), op.permute_dims(heads(), [0, 1, 3, 2])), -1))
    y = builder.emit(op.permute_dims(op.matmul(scores, heads()), [0, 2, 1, 3]))
    y = builder.emit(op.add(x, op.matmul(op.reshape(y, (batch, tokens, width)), constant(width, width))))
    return builder.emit(nn.layer_norm(y, constant(width), constant(width), axes=[-1]))


PROGRAMS = {
    "batch": (lambda: program((symbol("n"), 32, 7, 6), convolutions), 2, 2),
    "batch and height": (lambda: program((symbol("n"), 32, symbol("h"), 6), convolutions), 2, 2),
    "depthwise": (lambda: program((symbol("n"), 8, symbol("h"), 6), depthwise), 0, 1),
    "tokens": (lambda: program((1, symbol("t"), 64), transformer), 5, 6),
    "batch and tokens": (lambda: program((symbol("n"), symbol("t"), 64), transformer), 5, 6),
}


@pytest.mark.parametrize("name", but_for(PROGRAMS, ["batch", "tokens"]))
def test_programs_of_unknown_sizes_run_on_tensor_cores(name: str) -> None:
    make, products, count = PROGRAMS[name]
    made = check(make(), sizes=(1, 5, 18))
    found = [launch.kernel for function in made.plan.functions for launch in function.launches]
    assert len(found) == count
    assert sum("mma" in made.sources[kernel] for kernel in found) == products


def test_nothing_is_launched_for_no_rows() -> None:
    device = simulated(check(program((symbol("n"), 64), lambda b, x: b.emit(op.matmul(x, constant(64, 32))))))
    assert device(np.zeros((0, 64), "float32")).shape == (0, 32)


def test_a_product_costs_what_it_does_of_the_size_that_is_assumed() -> None:
    """Ten times as much was said, for ordinary units: layouts were chosen by it."""
    costs = [eqsat_layout.plan(program((n, 32, 28, 28), convolutions), CUDA).cost for n in (symbol("n"), SYMBOL_SIZE)]
    assert costs[0] == pytest.approx(costs[1], rel=0.05)


def test_the_host_says_into_how_many_parts_a_sum_is_cut() -> None:
    mod = program((symbol("n"), 512), lambda builder, x: builder.emit(op.matmul(x, constant(512, 64))))
    made = check(mod, sizes=(1, 40), orders=(0, 1, 2))
    (function,) = made.plan.functions
    (launch,) = function.launches

    def blocks(n: int) -> tuple[int, int]:
        across, parts, _ = (value_of(size, {"s0": n}) for size in launch.groups)
        return across, parts

    def kept(n: int) -> int:
        return sum(value_of(one.bytes, {"s0": n}) for one in made.plan.memories if one.dtype == "uint8")

    assert blocks(1)[1] > blocks(320)[1] > 1
    assert blocks(1 << 20)[1] == 1
    assert kept(1 << 20) < 1 << 20, "memory for parts that there are none of"


def test_tensors_that_kernels_can_not_count_in_32_bits_are_refused() -> None:
    made = check(program((symbol("n"), 64), lambda builder, x: builder.emit(op.matmul(x, constant(64, 32)))))
    (function,) = made.plan.functions
    assert launches(made) == ["matmul"]

    def fits(n: int) -> bool:
        return all(value_of(one.size, {"s0": n}) == one.expected for one in function.casts)

    assert fits(LARGEST // 64)
    assert not fits(LARGEST // 64 + 1)


@given(st.integers(0, 40), st.integers(1, 9), st.sampled_from([1, 2, 3, 16]))
def test_extents_are_what_they_are_when_sizes_are_known(n: int, factor: int, size: int) -> None:
    var = tirx.Var("n", "int32")
    extent = product_of_extents((tirx.IntImm("int32", factor), var))

    def known(expression: Any) -> Any:
        return as_int(sym.Analyzer().simplify(substitute(expression, {var: tirx.IntImm("int32", n)})))

    assert known(extent) == n * factor
    assert known(tiles_over(extent, size)) == tiles_over(n * factor, size) == -(-n * factor // size)
    assert is_whole_tiles(n * factor, size) or not is_whole_tiles(extent, size)
    assert assumed(extent) == SYMBOL_SIZE * factor
    assert assumed(n) == n
