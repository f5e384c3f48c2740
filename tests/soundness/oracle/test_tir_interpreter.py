"""The interpreter of TIR beside LLVM, and what it says of undef."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from soundness.oracle.as_llvm import Llvm, arrays, assert_same, undefined_at
from soundness.oracle.op_cases import BIT_FOR_BIT, OPS
from tir.helpers import legal
from tvm import s_tir, te, tirx
from tvm.relax import op as R
from tvm.script import tirx as T

from eqsat_layout.graph.graph import TensorType
from eqsat_layout.soundness.oracle import tir_nests
from eqsat_layout.soundness.oracle.tir_calls import CALLS
from eqsat_layout.soundness.oracle.tir_interpreter import Interpreter, InterpreterError, Masked, run_prim_func
from eqsat_layout.soundness.rules.runners import LegalisedOp
from eqsat_layout.soundness.rules.schema import drawn
from eqsat_layout.tir import arithmetic


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


@pytest.mark.parametrize("is_store", [False, True])
def test_an_index_that_is_no_integer_is_refused(is_store: bool) -> None:
    """TVM's code takes the bits of a bfloat16 for one: there is nothing to compare with (`grad.take_backward`)."""
    at, x, y = (tirx.decl_buffer((2,), dtype, dtype) for dtype in ("bfloat16", "float32", "float64"))
    places = [at[1]], [1]
    to, of = places if is_store else places[::-1]
    func = tirx.PrimFunc([at, x, y], tirx.BufferStore(y, x[*of].astype("float64"), to)).with_attr("global_symbol", "f")
    with pytest.raises(InterpreterError, match="an index is no integer"):
        run_prim_func(func, [Masked.of(np.zeros((1, 2), dtype)) for dtype in ("bfloat16", "float32")])


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


@T.prim_func(s_tir=True)
def unequal_sums(x: T.Buffer((2, 3), "float32"), y: T.Buffer((2,), "int32")):
    for i, j in T.grid(2, 3):
        with T.sblock("count"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                y[vi] = 0
            y[vi] = y[vi] + T.if_then_else(x[vi, vj] != T.float32(1), 1, 0)


def test_nan_differs_from_numbers_in_the_world_of_devices() -> None:
    """Only TVM's code for CPUs was believed: what is unequal to itself was said to be less than itself."""
    x = Masked.of(np.array([[[np.nan, 1, 2], [1, 1, np.nan]]] * 3, "float32"))
    assert run_prim_func(unequal_sums, [x], 2)[0].values.tolist() == [[1, 0], [1, 0], [2, 1]]
    assert run_prim_func(unequal_sums, [x])[0].values.tolist() == [[1, 0]] * 3


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


def test_a_run_that_takes_too_long_ends() -> None:
    """A sum of bfloat16 along a long axis, which the fuzzer only tried, ran for minutes: work was counted after it."""
    x = te.placeholder((2000,), name="x")
    k = te.reduce_axis((0, 2000), "k")
    interpreter = Interpreter(te.create_prim_func([x, te.compute((), lambda: te.sum(x[k], k))]))
    operands = [Masked.of(np.ones((1, 2000), "float32"))]
    interpreter.most_work = 100
    with pytest.raises(InterpreterError, match="too long"):
        interpreter.run(operands)
    interpreter.most_work = np.inf
    (total,) = interpreter.run(operands)
    assert total.values.item() == 2000


@T.prim_func(s_tir=True)
def around(x: T.Buffer((20,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(20):
        with T.sblock("around"):
            vi = T.axis.opaque(20, i)
            T.reads(x[vi], y[(vi + 3) % 4])
            T.writes(y[vi % 4])
            y[vi % 4] = T.if_then_else(vi > 0, y[(vi + 3) % 4], T.float32(0)) + x[vi]


def test_where_a_step_reads_and_writes_is_worked_out_in_the_first_run_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models run one running sum on hundreds of tensors: most of the time of a rule on two of them went there."""
    taken: list[int] = []

    def counted(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        taken.append(1)
        return np.mod(a, b)

    monkeypatch.setitem(arithmetic.BINARY, tirx.FloorMod, counted)
    interpreter = Interpreter(around)
    for factor in (1, 2, -3):
        x = np.arange(40, dtype="float32").reshape(2, 20) * factor
        before = len(taken)
        (y,) = interpreter.run([Masked.of(x)])
        assert (len(taken) > before) == (factor == 1)
        assert (y.values == np.cumsum(x, axis=1)[:, 16:]).all()


@T.prim_func(s_tir=True)
def repeated(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("y"):
            v = T.axis.spatial(4, i)
            y[v] = T.if_then_else(
                T.exp(x[v]) > T.float32(1),
                T.exp(x[v]) * T.float32(0) + T.exp(x[v]),
                T.exp(x[v]) * T.float32(-0.0) - T.exp(x[v]),
            )


def test_what_stands_in_an_expression_several_times_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bicubic sample works out its indices again in each of sixteen places: rules about them took 23 s."""
    taken: list[Any] = []

    def exp(x: Any) -> Any:
        taken.append(x)
        return np.exp(x)

    monkeypatch.setitem(CALLS, "exp", exp)
    interpreter = Interpreter(repeated)
    for x in (np.array([[-1, 0, 1, -0.0]], "float32"), np.array([[2, 3, -4, 5]], "float32")):
        (found,) = interpreter.run([Masked.of(x)])
        e = np.exp(x)
        expected = np.where(e > 1, e * np.float32(0) + e, e * np.float32(-0.0) - e)
        assert found.values.tobytes() == expected.tobytes()
    assert len(taken) == 2


@T.prim_func(s_tir=True)
def guarded_twice(x: T.Buffer((4,), "float32"), at: T.Buffer((4,), "int32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("y"):
            v = T.axis.spatial(4, i)
            y[v] = T.if_then_else(at[v] < 4, x[at[v]], T.float32(0)) + T.if_then_else(at[v] < 2, x[at[v]], T.float32(1))


def test_what_is_read_under_two_guards_is_read_under_each() -> None:
    """The one may let through what the other keeps out."""
    x = Masked.of(np.array([[10, 20, 30, 40]], "float32"))
    (found,) = run_prim_func(guarded_twice, [x, Masked.of(np.array([[0, 3, 9, 1]], "int32"))])
    assert found.values.tolist() == [[20, 41, 1, 40]]
