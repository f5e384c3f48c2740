"""Concats whose parts are written in place: what is, what is not, and that numbers stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import AVX2, constant, program
from tvm import relax
from tvm.relax import op as R
from tvm.script import tirx as T
from tvm_ffi import structural_equal

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.notes import Notes
from eqsat_layout.soundness.programs.check import unscheduled_library
from eqsat_layout.targets.cpu.places.box import Box, in_boxes, out_of_boxes
from eqsat_layout.targets.cpu.places.concat_boxes import boxes_in_concat
from eqsat_layout.targets.cpu.places.concats_in_place import concat_in_place
from eqsat_layout.targets.registry import target

Body = Callable[..., Any]
ROWS = (2, 6, 8)


def conv(b: Any, x: Any, outputs: int, layout: str = "NCHW", seed: int = 0) -> Any:
    inputs = int(x.ty.shape[layout.index("C")])
    weight = constant(outputs, inputs, 3, 3, seed=seed)
    return b.emit(R.nn.conv2d(x, weight, padding=1, data_layout=layout, kernel_layout="OIHW"))


def step(b: Any, x: Any, seed: int = 0) -> Any:
    """A kernel that is fused with nothing behind it."""
    return b.emit(R.matmul(x, constant(int(x.ty.shape[-1]), int(x.ty.shape[-1]), seed=seed)))


def fire(layout: str) -> Body:
    axis = layout.index("C")

    def body(b: Any, x: Any) -> Any:
        both = b.emit(R.concat([conv(b, x, 16, layout), conv(b, x, 24, layout, 1)], axis))
        return conv(b, both, 8, layout)

    return body


def read_by_others(b: Any, x: Any) -> Any:
    """Every step reads the one before, and a concat all of them."""
    first = step(b, x)
    second = step(b, first, 1)
    third = step(b, second, 2)
    return step(b, b.emit(R.concat([first, third, second], 1)))


def with_parameters(b: Any, x: Any) -> Any:
    return step(b, b.emit(R.concat([x, step(b, x)], 1)))


def the_same_twice(b: Any, x: Any) -> Any:
    y = step(b, x)
    return step(b, b.emit(R.concat([y, y, step(b, x, 1)], 1)))


def nested(b: Any, x: Any) -> Any:
    inner = b.emit(R.concat([step(b, x), step(b, x, 1)], 1))
    return step(b, b.emit(R.concat([step(b, inner), inner], 1)))


def in_two_concats(b: Any, x: Any) -> Any:
    y = step(b, x)
    one = step(b, b.emit(R.concat([y, step(b, x, 1)], 1)))
    return b.emit(R.concat([step(b, b.emit(R.concat([step(b, x, 2), y], 1))), one], 2))


def result_is_a_part(b: Any, x: Any) -> Any:
    y = step(b, x)
    return y, step(b, b.emit(R.concat([y, step(b, x, 1)], 1)))


PROGRAMS: dict[str, tuple[Body, tuple[int, ...], int]] = {
    "channels first": (fire("NCHW"), (1, 4, 9, 7), 1),
    "channels last": (fire("NHWC"), (2, 9, 7, 4), 1),
    "read by others": (read_by_others, ROWS, 2),
    "a parameter is copied": (with_parameters, ROWS, 1),
    "the same twice": (the_same_twice, ROWS, 2),
    "nested": (nested, ROWS, 1 + 1),
    "in two concats": (in_two_concats, ROWS, 1 + 1),
    "a result of the function": (result_is_a_part, ROWS, 1),
}
"""The program, what it is given, and how many calls write into what others have begun."""


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_results_are_the_same(name: str) -> None:
    body, shape, count = PROGRAMS[name]
    own = target({"kind": "llvm", "num-cores": 1})
    plain = relax.transform.FuseTIR()(legalize(program(body, shape)))
    placed = concat_in_place(plain)
    assert placed["main"].script().count("call_tir_inplace") == count
    relax.analysis.well_formed(placed)
    x = tvm.runtime.tensor(np.random.default_rng(1).standard_normal(shape).astype("float32"))
    results = [
        relax.VirtualMachine(own.build(mod, Notes(strict=True)), tvm.cpu())["main"](x) for mod in (plain, placed)
    ]
    expected, got = ([y.numpy() for y in ([r] if hasattr(r, "numpy") else r)] for r in results)
    for one, other in zip(expected, got, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", [AVX2, {"kind": "llvm", "num-cores": 1}], ids=["AVX2", "this machine"])
def test_a_network_is_built_with_its_parts_in_place(kind: Any) -> None:
    own = target(kind)
    joined = own.join(legalize(program(fire("NCHW"), (1, 4, 32, 32))), Notes(strict=True))
    assert "call_tir_inplace" in joined["main"].script()
    assert "concat" not in joined["main"].script()


def test_a_concat_that_the_function_gives_as_it_is_stays() -> None:
    mod = legalize(program(lambda b, x: R.concat([step(b, x), step(b, x, 1)], 1), ROWS))
    whole = mod["main"].body.blocks[0].bindings[-1].var
    assert not isinstance(whole, relax.DataflowVar)
    assert concat_in_place(mod) is mod


# ---- what is put together ----------------------------------------------------------------------------------------


@T.prim_func(private=True, s_tir=True)
def overlapping(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32"), z: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("choice"):
            v = T.axis.spatial(4, i)
            z[v] = T.if_then_else(x[0] > T.float32(0), x[v], y[v])


@T.prim_func(private=True, s_tir=True)
def reversed_part(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32"), z: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("choice"):
            v = T.axis.spatial(8, i)
            z[v] = T.if_then_else(v < 4, x[v], y[7 - v])


@T.prim_func(private=True, s_tir=True)
def padded(x: T.Buffer((4,), "float32"), y: T.Buffer((3,), "float32"), z: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("choice"):
            v = T.axis.spatial(8, i)
            z[v] = T.if_then_else(v < 4, x[v], T.if_then_else(v < 7, y[v - 4], T.float32(0)))


@T.prim_func(private=True, s_tir=True)
def joined(x: T.Buffer((4, 2), "float32"), y: T.Buffer((3, 2), "float32"), z: T.Buffer((1, 7, 2), "float32")):
    for i, j, k in T.grid(1, 7, 2):
        with T.sblock("choice"):
            a, v, w = T.axis.remap("SSS", [i, j, k])
            z[a, v, w] = T.if_then_else(v < 4, x[v, w], y[v - 4, w])


@pytest.mark.parametrize("func", [overlapping, reversed_part, padded])
def test_other_choices_are_no_concats(func: Any) -> None:
    assert boxes_in_concat(func) is None


def test_places_are_read_off_the_accesses() -> None:
    assert boxes_in_concat(joined) == {
        0: Box((4, 2), (1, 7, 2), (None, 0, 1), (0, 0, 0)),
        1: Box((3, 2), (1, 7, 2), (None, 0, 1), (0, 4, 0)),
    }


# ---- boxes -------------------------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=tries(20), deadline=None)
def test_kernels_move_into_boxes_and_out_again(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    starts = tuple(data.draw(st.integers(0, 3)) for _ in shape)
    outer = tuple(s + e + data.draw(st.integers(0, 2)) for s, e in zip(starts, shape, strict=True))
    box = Box(shape, (1, *outer), (None, *range(len(shape))), (0, *starts))
    func = legalize(program(lambda b, x: b.emit(R.negative(x)), shape))["tir_negative"]
    moved = in_boxes(func, {1: box})
    assert structural_equal(out_of_boxes(moved), func)
    x, y = np.random.default_rng(0).standard_normal(shape).astype("float32"), np.zeros((1, *outer), "float32")
    result = tvm.runtime.tensor(y)
    unscheduled_library({"main": moved})["main"](tvm.runtime.tensor(x), result)
    y[(0, *(slice(s, s + e) for s, e in zip(starts, shape, strict=True)))] = -x
    np.testing.assert_array_equal(result.numpy(), y)
