"""The interpreter of TIR beside LLVM, and what it says of undef."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tir.helpers import legal, understood
from tir.poison import padded
from tvm import relax, s_tir, te, tirx
from tvm.relax import op as R
from tvm.script import tirx as T

from eqsat_layout.graph.graph import TensorType
from eqsat_layout.maps import UNDEF
from eqsat_layout.soundness.oracle import tir_nests
from eqsat_layout.soundness.oracle.tir_interpreter import Interpreter, InterpreterError, Masked, run_prim_func
from eqsat_layout.soundness.programs.check import unscheduled_library
from eqsat_layout.soundness.rules.runners import LegalisedOp
from eqsat_layout.soundness.rules.schema import drawn
from eqsat_layout.soundness.rules.stored import lay
from eqsat_layout.tir.flow import backward, forward
from eqsat_layout.tir.rewrite import relayout

WORLDS = 2
IMAGE = (2, 4, 6, 6)
HALF = "float16"


def cast(dtype: str) -> Callable[..., Any]:
    return lambda x: R.astype(x, dtype)


OPS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    **{f.__name__: (f, [(3, 5)]) for f in (R.nn.relu, R.nn.silu, R.nn.gelu, R.erf, R.exp, R.log, R.log, R.sqrt)},
    **{f.__name__: (f, [(3, 5)]) for f in (R.rsqrt, R.sigmoid, R.tanh, R.sin, R.cos, R.atan, R.floor, R.ceil)},
    **{f.__name__: (f, [(3, 5)]) for f in (R.round, R.trunc, R.abs, R.sign, R.square, R.isnan, R.negative)},
    **{f"{f.__name__}2": (f, [(3, 5), (3, 5)]) for f in (R.power, R.maximum, R.minimum, R.greater, R.not_equal)},
    **{
        f"{f.__name__} of integers": (f, [((3, 5), "int32"), ((3, 5), "int32")])
        for f in (R.add, R.floor_divide, R.mod, R.bitwise_and, R.bitwise_xor, R.left_shift, R.right_shift, R.less)
    },
    "bitwise_not": (R.bitwise_not, [((3, 5), "int32")]),
    "logical_and": (R.logical_and, [((3, 5), "bool"), ((3, 5), "bool")]),
    "logical_or": (R.logical_or, [((3, 5), "bool"), ((3, 5), "bool")]),
    "logical_not": (R.logical_not, [((3, 5), "bool")]),
    "clip": (lambda x: R.clip(x, 0.25, 0.75), [(3, 5)]),
    "leaky_relu": (lambda x: R.nn.leakyrelu(x, 0.1), [(3, 5)]),
    "bias": (R.add, [IMAGE, (4, 1, 1)]),
    "multiply by a scalar": (R.multiply, [IMAGE, ()]),
    "float16": (R.multiply, [((3, 5), HALF), ((3, 5), HALF)]),
    "float16 sum": (lambda x: R.sum(x, axis=[0]), [((9, 5), HALF)]),
    "float64": (R.exp, [((3, 5), "float64")]),
    "astype int8": (cast("int8"), [(3, 5)]),
    "astype float16": (cast(HALF), [(3, 5)]),
    "int32 to uint8": (cast("uint8"), [((3, 5), "int32")]),
    "astype bool": (cast("bool"), [(3, 5)]),
    "sum": (lambda x: R.sum(x, axis=[1, 3]), [IMAGE]),
    "sum of all": (R.sum, [IMAGE]),
    "max": (lambda x: R.max(x, axis=1, keepdims=True), [IMAGE]),
    "min": (lambda x: R.min(x, axis=[2, 3]), [IMAGE]),
    "prod": (lambda x: R.prod(x, axis=1), [IMAGE]),
    "mean": (lambda x: R.mean(x, axis=[2, 3]), [IMAGE]),
    "variance": (lambda x: R.variance(x, axis=[1]), [IMAGE]),
    "argmax": (lambda x: R.argmax(x, axis=1), [IMAGE]),
    "argmin": (lambda x: R.argmin(x, axis=1, keepdims=True), [IMAGE]),
    "softmax": (lambda x: R.nn.softmax(x, axis=1), [IMAGE]),
    "log_softmax": (lambda x: R.nn.log_softmax(x, axis=-1), [(3, 5)]),
    "layer_norm": (lambda x, g, b: R.nn.layer_norm(x, g, b, axes=[-1]), [(2, 4, 6), (6,), (6,)]),
    "rms_norm": (lambda x, g: R.nn.rms_norm(x, g, axes=[-1]), [(2, 4, 6), (6,)]),
    "group_norm": (
        lambda x, g, b: R.nn.group_norm(x, g, b, num_groups=2, channel_axis=1, axes=[2, 3]),
        [IMAGE, (4,), (4,)],
    ),
    "instance_norm": (lambda x, g, b: R.nn.instance_norm(x, g, b, channel_axis=1, axes=[2, 3]), [IMAGE, (4,), (4,)]),
    "conv1d": (lambda x, w: R.nn.conv1d(x, w, padding=1), [(2, 4, 8), (3, 4, 3)]),
    "conv2d": (lambda x, w: R.nn.conv2d(x, w, padding=1, strides=2), [IMAGE, (3, 4, 3, 3)]),
    "conv2d dilated": (lambda x, w: R.nn.conv2d(x, w, dilation=2), [IMAGE, (3, 4, 3, 3)]),
    "conv3d": (lambda x, w: R.nn.conv3d(x, w, padding=1), [(1, 2, 3, 3, 3), (2, 2, 3, 3, 3)]),
    "depthwise": (lambda x, w: R.nn.conv2d(x, w, groups=4), [IMAGE, (4, 1, 3, 3)]),
    "grouped": (lambda x, w: R.nn.conv2d(x, w, groups=2, padding=1), [IMAGE, (6, 2, 3, 3)]),
    "conv2d_transpose": (lambda x, w: R.nn.conv2d_transpose(x, w, strides=2), [IMAGE, (4, 3, 2, 2)]),
    "matmul": (R.matmul, [(2, 3, 4), (4, 5)]),
    "batched matmul": (R.matmul, [(2, 3, 4), (2, 4, 5)]),
    "max_pool2d": (lambda x: R.nn.max_pool2d(x, (3, 3), padding=1, strides=2), [IMAGE]),
    "avg_pool2d": (lambda x: R.nn.avg_pool2d(x, (3, 3), padding=1), [IMAGE]),
    "adaptive_avg_pool2d": (lambda x: R.nn.adaptive_avg_pool2d(x, (4, 4)), [IMAGE]),
    "resize2d": (lambda x: R.image.resize2d(x, (9, 9), layout="NCHW", method="linear"), [IMAGE]),
    "resize2d nearest": (lambda x: R.image.resize2d(x, (9, 5), layout="NCHW", method="nearest_neighbor"), [IMAGE]),
    "concat": (lambda x, y: R.concat([x, y], axis=1), [IMAGE, IMAGE]),
    "stack": (lambda x, y: R.stack([x, y], axis=1), [IMAGE, IMAGE]),
    "split": (lambda x: R.split(x, 2, axis=1), [IMAGE]),
    "pad": (lambda x: R.nn.pad(x, [0, 0, 1, 2]), [(3, 5)]),
    "strided_slice": (lambda x: R.strided_slice(x, [1], [0], [6], [2]), [(3, 6)]),
    "flip": (lambda x: R.flip(x, 1), [(3, 6)]),
    "reshape": (lambda x: R.reshape(x, (6, 3)), [(3, 6)]),
    "permute_dims": (lambda x: R.permute_dims(x, [2, 0, 1]), [(2, 3, 6)]),
    "broadcast_to": (lambda x: R.broadcast_to(x, (4, 3, 6)), [(3, 1)]),
    "repeat": (lambda x: R.repeat(x, 2, axis=1), [(3, 6)]),
    "tile": (lambda x: R.tile(x, (2, 3)), [(3, 6)]),
    "tril": (lambda x: R.tril(x, 1), [(5, 6)]),
    "take": (lambda x, i: R.take(x, i, axis=0), [(3, 5), ((4,), "int32")]),
    "gather_elements": (lambda x, i: R.gather_elements(x, i, axis=1), [(3, 5), ((3, 2), "int64")]),
    "scatter_elements": (
        lambda x, i, u: R.scatter_elements(x, i, u, axis=1),
        [(3, 5), ((3, 1), "int64"), (3, 1)],
    ),
    "one_hot": (
        lambda i: R.one_hot(i, relax.prim_value(tirx.const(1.0)), relax.prim_value(tirx.const(0.0)), 4),
        [((5,), "int32")],
    ),
    "where": (R.where, [((3, 5), "bool"), (3, 5), (3, 5)]),
    "one element": (R.nn.relu, [()]),
    "nothing": (R.nn.relu, [(0, 3)]),
}
BIT_FOR_BIT = ("sum", "float16 sum", "conv2d", "matmul", "argmax", "prod")
"""Where the order of the arithmetic shows."""


class Llvm:
    """Collects functions and builds all of them at once, unscheduled."""

    def __init__(self) -> None:
        self._functions: dict[str, Any] = {}
        self._library: Any = None

    def add(self, func: Any) -> str:
        name = f"f{len(self._functions)}"
        self._functions[name] = func
        return name

    def run(self, name: str, operands: list[Any], garbage: int = 0) -> list[Any]:
        """The results, world by world; what is not written stays ``garbage``."""
        if self._library is None:
            self._library = unscheduled_library(self._functions)
        params = self._functions[name].params[len(operands) :]
        worlds = []
        for world in range(len(operands[0])):
            results = [np.full([int(e) for e in p.ty.shape], garbage, str(p.ty.dtype)) for p in params]
            tensors = [tvm.runtime.tensor(np.array(a[world])) for a in operands]
            outs = [tvm.runtime.tensor(r) for r in results]
            self._library[name](*tensors, *outs)
            worlds.append([r.numpy() for r in outs])
        return [np.stack(result) for result in zip(*worlds, strict=True)]


def arrays(func: Any, count: int, seed: int = 0) -> list[Any]:
    """Operands in several worlds."""
    rng = np.random.default_rng(seed)
    found = []
    for param in func.params[:count]:
        shape, dtype = (WORLDS, *(int(e) for e in param.ty.shape)), str(param.ty.dtype)
        if dtype == "bool" or "int" in dtype:
            found.append(rng.integers(0 if dtype == "bool" else 1, 2 if dtype == "bool" else 3, shape).astype(dtype))
        else:
            found.append(rng.uniform(0.1, 1, shape).astype(dtype))
    return found


def assert_same(found: list[Masked], wanted: list[Any], name: str, *, exact: bool = False) -> None:
    assert len(found) == len(wanted), name
    for got, expected in zip(found, wanted, strict=True):
        assert got.values.dtype == expected.dtype, name
        assert got.defined.all(), name
        tolerance = 0 if exact else 2e-3 if expected.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(got.values, expected, rtol=tolerance, atol=tolerance, err_msg=name)


def test_as_llvm() -> None:
    llvm = Llvm()
    funcs = {name: legal(build, *shapes) for name, (build, shapes) in OPS.items()}
    symbols = {name: llvm.add(func) for name, func in funcs.items()}
    for name, func in funcs.items():
        operands = arrays(func, len(OPS[name][1]))
        found = Interpreter(func).run([Masked.of(a) for a in operands])
        assert_same(found, llvm.run(symbols[name], operands), name, exact=name in BIT_FOR_BIT)


@T.prim_func(s_tir=True)
def scan(x: T.Buffer((3, 5), "float32"), y: T.Buffer((3, 5), "float32")):
    for i in range(3):
        for j in range(5):
            with T.sblock("scan"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = T.if_then_else(vj > 0, y[vi, vj - 1], T.float32(0)) + x[vi, vj]


@T.prim_func(s_tir=True)
def overwritten(x: T.Buffer((3, 5), "float32"), y: T.Buffer((3,), "float32")):
    for i, j in T.grid(3, 5):
        with T.sblock("last"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi] = x[vi, vj]


@T.prim_func(s_tir=True)
def accumulated(x: T.Buffer((3, 5), "float32"), y: T.Buffer((3,), "float32")):
    for i in range(3):
        y[i] = T.float32(1)
    for i, j in T.grid(3, 5):
        with T.sblock("said to be spatial"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi] = y[vi] + x[vi, vj]


@T.prim_func(s_tir=True)
def triangle(x: T.Buffer((4, 4), "float32"), y: T.Buffer((4, 4), "float32")):
    for i in range(4):
        for j in range(4):
            y[i, j] = T.float32(0)
        for j in range(i + 1):
            y[i, j] = x[j, i] * T.float32(2)


@T.prim_func(s_tir=True)
def branches(x: T.Buffer((4, 4), "float32"), y: T.Buffer((4, 4), "float32")):
    for i, j in T.grid(4, 4):
        with T.sblock("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            if x[vi, vj] > T.float32(0.5):
                y[vi, vj] = x[vj, vi] + T.Cast("float32", vi)
            else:
                y[vi, vj] = -x[vi, vj]


@T.prim_func(s_tir=True)
def two_loops_reduced(x: T.Buffer((4, 6), "float32"), y: T.Buffer((4,), "float32")):
    for i, k0, k1 in T.grid(4, 2, 4):
        with T.sblock("sum"):
            vi = T.axis.spatial(4, i)
            vk = T.axis.reduce(6, k0 * 4 + k1)
            T.where(k0 * 4 + k1 < 6)
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + x[vi, vk] * T.float32(0.1)


@T.prim_func(s_tir=True)
def split_unevenly(x: T.Buffer((6,), "float32"), y: T.Buffer((6,), "float32")):
    for i0, i1 in T.grid(2, 4):
        with T.sblock("b"):
            vi = T.axis.spatial(6, i0 * 4 + i1)
            T.where(i0 * 4 + i1 < 6)
            y[vi] = x[vi] + T.float32(1)


@T.prim_func(s_tir=True)
def halves(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        y[i] = x[i]
        while y[i] > T.float32(0.2):
            y[i] = y[i] * T.float32(0.5)


HAND_MADE = (scan, overwritten, accumulated, triangle, branches, two_loops_reduced, split_unevenly, halves)


def test_iterations_that_depend_on_each_other_run_in_order() -> None:
    llvm = Llvm()
    symbols = [llvm.add(func) for func in HAND_MADE]
    for func, symbol in zip(HAND_MADE, symbols, strict=True):
        (x,) = arrays(func, 1)
        assert_same(run_prim_func(func, [Masked.of(x)]), llvm.run(symbol, [x]), str(symbol), exact=True)


def test_a_scheduled_function_computes_the_same() -> None:
    func = legal(lambda x, w: R.nn.conv2d(x, w, padding=1), (1, 3, 6, 6), (4, 3, 3, 3))
    schedule = s_tir.Schedule(func)
    block = schedule.get_sblock("conv2d_nchw")
    _, channel, row, column, *_ = schedule.get_loops(block)
    outer, _ = schedule.split(column, [None, 4])  # 6 is not divided: a predicate
    schedule.reorder(outer, channel, row)
    schedule.compute_at(schedule.get_sblock("pad_temp"), channel)
    operands = [Masked.of(a) for a in arrays(func, 2)]
    (plain,), (scheduled,) = run_prim_func(func, operands), run_prim_func(schedule.mod["main"], operands)
    assert scheduled.defined.all()
    np.testing.assert_array_equal(plain.values, scheduled.values)


@pytest.mark.parametrize("at_once", [1, 100, 10_000])
def test_a_reduction_may_be_computed_in_parts(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    func = legal(lambda x, w: R.nn.conv2d(x, w, padding=1), (1, 3, 6, 6), (4, 3, 3, 3))
    operands = [Masked.of(a) for a in arrays(func, 2)]
    (whole,) = run_prim_func(func, operands)
    monkeypatch.setattr(tir_nests, "AT_ONCE", at_once)
    (parts,) = run_prim_func(func, operands)
    np.testing.assert_array_equal(whole.values, parts.values)


def undefined_at(shape: tuple[int, ...], *points: tuple[int, ...]) -> Masked:
    """Ones in one world, not defined at ``points``."""
    defined = np.ones((1, *shape), bool)
    for point in points:
        defined[(0, *point)] = False
    return Masked(np.ones((1, *shape), "float32"), defined)


def test_undef_spreads_only_as_far_as_it_is_read() -> None:
    func = legal(lambda x: R.sum(x, axis=[1]), (3, 4))
    (result,) = run_prim_func(func, [undefined_at((3, 4), (1, 2))])
    assert result.defined.tolist() == [[True, False, True]]


def test_undef_spreads_through_the_windows_that_see_it() -> None:
    func = legal(lambda x, w: R.nn.conv2d(x, w, padding=1), (1, 1, 5, 5), (2, 1, 3, 3))
    weight = Masked.of(np.ones((1, 2, 1, 3, 3), "float32"))
    (result,) = run_prim_func(func, [undefined_at((1, 1, 5, 5), (0, 0, 0, 4)), weight])
    wanted = np.ones((5, 5), bool)
    wanted[:2, 3:] = False
    np.testing.assert_array_equal(result.defined[0, 0], [wanted, wanted])


def test_undef_stays_out_of_a_branch_that_is_not_taken() -> None:
    """``nn.pad`` reads its operand inside only, out of bounds elsewhere."""
    func = legal(lambda x: R.nn.pad(x, [1, 1]), (4,))
    (result,) = run_prim_func(func, [undefined_at((4,), (2,))])
    assert result.values.tolist() == [[0, 1, 1, 1, 1, 0]]
    assert result.defined.tolist() == [[True, True, True, False, True, True]]


def test_a_choice_takes_from_the_branch_that_a_defined_condition_chooses() -> None:
    func = legal(R.where, ((4,), "bool"), (4,), (4,))
    condition = Masked(np.array([[True, True, False, True]]), np.array([[True, True, True, False]]))
    (result,) = run_prim_func(func, [condition, undefined_at((4,), (1,)), undefined_at((4,), (0,), (2,))])
    assert result.defined.tolist() == [[True, False, False, False]]


@pytest.mark.parametrize(("op", "decides"), [(R.logical_and, False), (R.logical_or, True)])
def test_one_defined_side_decides_and_and_or(op: Any, decides: bool) -> None:
    func = legal(op, ((2,), "bool"), ((2,), "bool"))
    known = Masked.of(np.array([[decides, not decides]]))
    nothing = Masked(np.zeros((1, 2), bool), np.zeros((1, 2), bool))
    for operands in ([known, nothing], [nothing, known]):
        (result,) = run_prim_func(func, operands)
        assert result.defined.tolist() == [[True, False]]
        assert result.values[0, 0] == decides


def test_0_times_undef_is_undef() -> None:
    func = legal(R.multiply, (2,), (2,))
    (result,) = run_prim_func(func, [Masked.of(np.zeros((1, 2), "float32")), undefined_at((2,), (1,))])
    assert result.defined.tolist() == [[True, False]]


def test_what_is_not_written_is_not_defined() -> None:
    @T.prim_func(s_tir=True)
    def half(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(2):
            with T.sblock("b"):
                v = T.axis.spatial(2, i)
                y[v * 2] = x[v]

    (result,) = run_prim_func(half, [Masked.of(np.ones((1, 4), "float32"))])
    assert result.defined.tolist() == [[True, False, True, False]]


PADDED: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "relu": (R.nn.relu, [(2, 5, 3)]),
    "sigmoid": (R.sigmoid, [(2, 5, 3)]),
    "add": (R.add, [(2, 5, 3), (5, 1)]),
    "sum": (lambda x: R.sum(x, axis=[2]), [(2, 5, 3)]),
    "sum over the padded": (lambda x: R.sum(x, axis=[1]), [(2, 5, 3)]),
    "softmax": (lambda x: R.nn.softmax(x, axis=1), [(2, 5, 3)]),
    "permute_dims": (lambda x: R.permute_dims(x, [1, 0, 2]), [(2, 5, 3)]),
    "concat": (lambda x, y: R.concat([x, y], axis=0), [(2, 5, 3), (2, 5, 3)]),
    "conv1d": (lambda x, w: R.nn.conv1d(x, w, padding=1), [(2, 5, 6), (5, 5, 3)]),
    "max_pool1d": (lambda x: R.nn.max_pool1d(x, 2, 2), [(2, 5, 6)]),
}
POISONS = (np.nan, 1e30, -1e30)


def test_what_is_undefined_is_what_differs_under_poison() -> None:
    llvm, cases = Llvm(), []
    for name, (build, shapes) in PADDED.items():
        func = legal(build, *shapes)
        computation = understood(func)
        for fill in (0.0, UNDEF):
            for derive, shape in ((backward, computation.buffers[computation.results[0]].shape), (forward, shapes[0])):
                if len(shape) < 2:
                    continue
                fmt = padded(shape, 1, 4, fill)
                for flow in derive(computation, 0, fmt):
                    laid = relayout(func, computation, flow)
                    cases.append((name, func, laid, llvm.add(laid), flow))
    undefined = 0
    for name, func, laid, symbol, flow in cases:
        data = arrays(func, len(PADDED[name][1]))
        given = [lay(f, a) for f, a in zip(flow.operands, data, strict=True)]
        found = run_prim_func(laid, [Masked(b.values, b.defined) for b in given])
        runs = []
        for poison in POISONS:
            poisoned = [np.where(b.defined, b.values, np.float32(poison)) for b in given]
            runs.append(llvm.run(symbol, poisoned, garbage=int(np.nan_to_num(poison, nan=7, posinf=8) % 11)))
        for k, result in enumerate(found):
            differs = np.zeros(result.defined.shape, bool)
            for run in runs[1:]:
                differs |= ~((run[k] == runs[0][k]) | (np.isnan(run[k]) & np.isnan(runs[0][k])))
            np.testing.assert_array_equal(differs, ~result.defined, err_msg=f"{name} under {flow}")
            undefined += int(differs.sum())
            where = result.defined
            np.testing.assert_allclose(result.values[where], runs[0][k][where], rtol=1e-5, atol=1e-6, err_msg=name)
    assert len(cases) > 20
    assert undefined > 100


@T.prim_func(s_tir=True)
def wild_store(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("b"):
            v = T.axis.spatial(4, i)
            y[v + 1] = x[v]


@T.prim_func(s_tir=True)
def wild_read(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("b"):
            v = T.axis.spatial(4, i)
            y[v] = T.if_then_else(v < 3, x[v + 2], T.float32(0))


@T.prim_func(s_tir=True)
def gather(x: T.Buffer((4,), "float32"), at: T.Buffer((4,), "int32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("b"):
            v = T.axis.spatial(4, i)
            y[v] = T.if_then_else(at[v] >= 0, x[at[v]], T.float32(0))


@T.prim_func(s_tir=True)
def scatter(x: T.Buffer((4,), "float32"), at: T.Buffer((4,), "int32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        y[at[i]] = x[i]


@T.prim_func(s_tir=True)
def until_enough(x: T.Buffer((4,), "float32"), at: T.Buffer((4,), "int32"), y: T.Buffer((2,), "float32")):
    for i, k in T.grid(2, 4):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + T.if_then_else(y[vi] < T.float32(2), x[at[vk]], T.float32(0))


ONES = Masked.of(np.ones((1, 4), "float32"))


def test_an_index_that_is_not_defined_is_what_its_own_guard_lets_through() -> None:
    """Guard and index are one number, whatever it is: the guard keeps -1 out, and would keep nothing else out."""
    known = np.array([[True, True, False, True]])
    (result,) = run_prim_func(gather, [ONES, Masked(np.array([[0, 1, -1, 3]], "int32"), known)])
    np.testing.assert_array_equal(result.defined, known)
    with pytest.raises(InterpreterError):
        run_prim_func(gather, [ONES, Masked(np.array([[0, 1, 7, 3]], "int32"), known)])


@pytest.mark.parametrize(
    ("func", "what"), [(wild_store, "wild_store: stores outside of y"), (wild_read, "wild_read: reads outside of x")]
)
def test_out_of_bounds_is_an_error(func: Any, what: str) -> None:
    with pytest.raises(InterpreterError, match=what):
        run_prim_func(func, [ONES])


def test_indices_from_data() -> None:
    at = np.array([[3, -1, 0, 0]], "int32")
    (result,) = run_prim_func(gather, [Masked.of(np.array([[1, 2, 3, 4]], "float32")), Masked.of(at)])
    assert result.values.tolist() == [[4, 0, 1, 1]]
    with pytest.raises(InterpreterError, match="gather: reads outside of x"):
        run_prim_func(gather, [ONES, Masked.of(at + 2)])
    (result,) = run_prim_func(gather, [ONES, Masked(at, at != 3)])
    assert result.defined.tolist() == [[False, True, True, True]]
    (result,) = run_prim_func(scatter, [ONES, Masked.of(at % 4)])
    assert result.defined.tolist() == [[True, False, False, True]]
    with pytest.raises(InterpreterError, match="scatter: stores to y at an index that is not defined"):
        run_prim_func(scatter, [ONES, Masked(at % 4, at != 3)])


def test_a_reduction_reads_only_while_its_own_result_says_so() -> None:
    at = np.array([[0, 1, 9, -9]], "int32")
    (result,) = run_prim_func(until_enough, [ONES, Masked.of(at)])
    assert result.values.tolist() == [[2, 2]]
    with pytest.raises(InterpreterError, match="until_enough: reads outside of x"):
        run_prim_func(until_enough, [ONES, Masked.of(at[:, ::-1].copy())])


@T.prim_func(s_tir=True)
def first_few(x: T.Buffer((4,), "float32"), n: T.Buffer((1,), "int32"), y: T.Buffer((4,), "float32")):
    for i in range(n[0]):
        y[i] = x[i]


def test_every_world_loops_as_often_as_its_own_data_says() -> None:
    x, n = Masked.of(np.ones((2, 4), "float32")), np.array([[1], [3]], "int32")
    (result,) = run_prim_func(first_few, [x, Masked.of(n)])
    assert result.defined.tolist() == [[True, False, False, False], [True, True, True, False]]
    with pytest.raises(InterpreterError, match="first_few: a loop has bounds that are not defined"):
        run_prim_func(first_few, [x, Masked(n, n != 3)])


def test_a_loop_that_its_operands_make_endless_is_refused_before_it_begins() -> None:
    x, n = Masked.of(np.ones((1, 4), "float32")), np.array([[2**31 - 1]], "int32")
    with pytest.raises(InterpreterError, match="first_few: its operands let loops go round more than"):
        run_prim_func(first_few, [x, Masked.of(n)])


def test_undef_decides_no_branch() -> None:
    with pytest.raises(InterpreterError, match="branches: branches on what is not defined"):
        run_prim_func(branches, [undefined_at((4, 4), (1, 1))])


def test_symbolic_sizes_come_from_the_operands() -> None:
    func = legal(R.nn.relu, ("n", 3))
    interpreter = Interpreter(func)
    for n in (5, 2, 5):
        (result,) = interpreter.run([Masked.of(-np.ones((1, n, 3), "float32"))])
        assert result.values.shape == (1, n, 3)


def test_an_operand_of_another_shape_or_dtype_is_refused() -> None:
    func = legal(R.nn.relu, (2, 3))
    for wrong in (np.ones((1, 3, 2), "float32"), np.ones((1, 2, 3), "float64")):
        with pytest.raises(InterpreterError, match="operand 0"):
            run_prim_func(func, [Masked.of(wrong)])


def test_an_operand_that_is_written_to_is_left_alone() -> None:
    x = np.ones((1, 4), "float32")
    y = np.zeros((1, 4), "float32")
    after = Interpreter(overwritten_in_place).run_in_place([Masked.of(x), Masked.of(y)])
    assert after[1].values.tolist() == [[2, 2, 2, 2]]
    assert not y.any()


@T.prim_func(s_tir=True)
def overwritten_in_place(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("b"):
            v = T.axis.spatial(4, i)
            y[v] = y[v] + x[v] * T.float32(2)


UNARY = (tirx.exp, tirx.floor, tirx.abs, lambda x: -x, lambda x: x * x, lambda x: tirx.Cast("float32", x > 0.5))
BINARY: tuple[Callable[..., Any], ...] = (
    lambda x, y: x + y,
    lambda x, y: x * y,
    lambda x, y: tirx.Max(x, y),
    lambda x, y: tirx.Select(x < y, x, y),
    lambda x, y: tirx.if_then_else(tirx.all(x < 1, y < 1), x - y, y),
)
SIDE = 4


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> Callable[..., Any]:
    """A function of two tensors and two indices: reads in bounds, in any order of the indices."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        operand, turned, shift = draw(st.integers(0, 1)), draw(st.booleans()), draw(st.integers(0, SIDE - 1))

        def read(tensors: Any, i: Any, j: Any) -> Any:
            a, b = (j, i) if turned else (i, j)
            return tensors[operand][a, (b + shift) % SIDE if shift else b]

        return read
    if draw(st.booleans()):
        inner, function = draw(expressions(depth - 1)), draw(st.sampled_from(UNARY))
        return lambda tensors, i, j: function(inner(tensors, i, j))
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    both = draw(st.sampled_from(BINARY))
    return lambda tensors, i, j: both(left(tensors, i, j), right(tensors, i, j))


def small_program(expression: Callable[..., Any], reduces: int) -> Any:
    """An elementwise stage of ``expression``; then the sum, the maximum (or neither) over its last axis."""
    inputs = [te.placeholder((SIDE, SIDE), name=f"x{k}") for k in range(2)]
    out = te.compute((SIDE, SIDE), lambda i, j: expression(inputs, i, j), name="stage")
    if reduces:
        k = te.reduce_axis((0, SIDE), "k")
        stage, over = out, te.sum if reduces == 1 else te.max
        out = te.compute((SIDE,), lambda i: over(stage[i, k] + expression(inputs, k, i), axis=k), name="reduced")
    return te.create_prim_func([*inputs, out])


@given(st.lists(st.tuples(expressions(), st.integers(0, 2)), min_size=10, max_size=10))
@settings(max_examples=6, deadline=None)
def test_small_programs_as_llvm(drawn: list[tuple[Callable[..., Any], int]]) -> None:
    llvm = Llvm()
    funcs = [small_program(*one) for one in drawn]
    symbols = [llvm.add(func) for func in funcs]
    for func, symbol in zip(funcs, symbols, strict=True):
        operands = arrays(func, 2)
        found = run_prim_func(func, [Masked.of(a) for a in operands])
        assert_same(found, llvm.run(symbol, operands), func.script())


@pytest.mark.parametrize(("score", "count", "says"), [(1.0, 4, "more elements"), (np.nan, 3, "NaN"), (1.0, 2, "")])
def test_a_sort_reads_no_more_than_there_is(score: float, count: int, says: str) -> None:
    """TVM's own kills the process where more elements are to be sorted than a row has; NaN has no order."""
    types = [TensorType((1, 3, 6), "float32"), TensorType((1,), "int32"), TensorType((1, 3), "int32")]
    attributes = {"id_index": -1, "coord_start": 2, "score_index": 1, "soft_nms_sigma": 0.0}
    call = drawn("relax.vision.non_max_suppression", types, random.Random(0), exact=True, kept=attributes)
    sort = LegalisedOp.of(call)
    values = [np.full((1, *ty.shape), v, ty.dtype) for ty, v in zip(types, (score, count, 0), strict=True)]
    if not says:
        assert len(sort.run([Masked.of(v) for v in values])) >= 1
        return
    with pytest.raises(InterpreterError, match=says):
        sort.run([Masked.of(v) for v in values])
