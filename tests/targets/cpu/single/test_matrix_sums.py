"""Products with known matrices are sums of what is not multiplied by zero, and nothing else changes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import tvm
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from targets.machines import AVX2
from tvm import relax, te

from eqsat_layout.implementations.algorithms.winograd import matrices
from eqsat_layout.passes.matrix_literals import knowing, literals_of, with_literals
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.single.matrix_sums import rows_times
from eqsat_layout.targets.lowering import lower

ONE_CORE = replace(AVX2, cores=1)
BACK, _, FORTH = matrices(4, 3)


@dataclass(frozen=True)
class Counted:
    """A number, and the operations that it took, a multiplication and the addition after it being one."""

    value: float
    operations: frozenset

    def __add__(self, other):
        return self._made("+", other, self.value + other.value)

    def __sub__(self, other):
        return self._made("-", other, self.value - other.value)

    def __mul__(self, factor):
        return Counted(self.value * factor, self.operations)

    def _made(self, sign, other, value):
        operation = (sign, self.value, other.value)
        return Counted(value, self.operations | other.operations | {operation})


@given(
    hnp.arrays("float32", hnp.array_shapes(min_dims=2, max_dims=2, max_side=7), elements=st.sampled_from([0, 1, -1, 2]))
)
def test_rows_times_operands(matrix):
    operands = np.random.default_rng(0).standard_normal(matrix.shape[1])
    assert np.allclose(rows_times(matrix, list(operands)), matrix @ operands, atol=1e-6)


@pytest.mark.parametrize(("matrix", "operations"), [(FORTH, 12), (BACK, 10)], ids=["data", "result"])
def test_operations_of_f_4_3(matrix, operations):
    """36 and 24 multiply-adds if all are done; Lavin and Gray count as we do."""
    operands = [Counted(value, frozenset()) for value in np.random.default_rng(0).standard_normal(6)]
    made = rows_times(matrix, operands)
    assert len(frozenset().union(*(row.operations for row in made))) == operations


def transform(matrix, columns, *, is_back=False, missing=0):
    """Rows of a matrix times overlapping windows, or rows side by side as one axis, of which some are ``missing``."""
    rows, steps = matrix.shape
    data = te.placeholder((5, steps, columns) if is_back else (5 * 4 + 2, columns), name="data")
    given_matrix = te.placeholder(matrix.shape, name="matrix")
    k = te.reduce_axis((0, steps), "k")
    if is_back:
        shape = (5 * rows - missing, columns)
        result = te.compute(
            shape, lambda y, x: te.sum(data[y // rows, k, x] * given_matrix[y % rows, k], axis=k), name="result"
        )
    else:
        shape = (rows, 5, columns)
        result = te.compute(shape, lambda a, y, x: te.sum(data[y * 4 + k, x] * given_matrix[a, k], axis=k))
    function = te.create_prim_func([data, given_matrix, result], index_dtype_override="int64")
    return function.without_attr("global_symbol")


def module(functions_and_matrices):
    """Every function called with its matrix, on data of its own."""
    builder = relax.BlockBuilder()
    shapes = [list(function.params[0].shape) for function, _ in functions_and_matrices]
    params = [relax.Var(f"x{n}", relax.TensorType(shape, "float32")) for n, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            made = []
            for param, (function, matrix) in zip(params, functions_and_matrices, strict=True):
                callee = builder.add_func(function, "transform")
                ty = relax.TensorType(list(function.params[2].shape), "float32")
                made.append(builder.emit(relax.call_tir(callee, relax.Tuple([param, relax.const(matrix)]), ty)))
            out = builder.emit_output(relax.Tuple(made))
        builder.emit_func_output(out)
    return builder.get()


@settings(max_examples=tries(12), deadline=None)
@given(st.sampled_from([(4, 3), (2, 3), (2, 5)]), st.sampled_from([8, 16, 24, 32, 5]), st.booleans(), st.integers(0, 3))
def test_kernels_compute_the_same(sizes, columns, is_back, missing):
    back, _, forth = matrices(*sizes)
    matrix = back if is_back else forth
    function = transform(matrix, columns, is_back=is_back, missing=min(missing, sizes[0] - 1))
    data = np.random.default_rng(0).standard_normal([int(e) for e in function.params[0].shape]).astype("float32")
    built = lower(module([(function, matrix)]))
    result = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(data))[0].numpy()
    if is_back:
        expected = np.einsum("pk,ykx->ypx", matrix, data).reshape(-1, columns)[: len(result)]
    else:
        windows = np.stack([data[4 * y : 4 * y + len(matrix[0])] for y in range(5)])
        expected = np.einsum("ak,ykx->ayx", matrix, windows)
    assert np.allclose(result, expected, atol=1e-4)


@pytest.mark.parametrize(("matrix", "is_back"), [(FORTH, False), (BACK, True)], ids=["data", "result"])
def test_tiles_hold_all_rows_and_are_written_out(matrix, is_back):
    function = transform(matrix, 32, is_back=is_back)
    known = knowing(function, [None, relax.const(matrix)])
    assert "update" in str(schedule_primfunc(function, ONE_CORE).script())
    text = str(schedule_primfunc(known, ONE_CORE).script())
    assert "update" not in text
    assert "matrix[" not in text


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_results_that_end_inside_of_a_matrix_are_written_out(missing):
    """29 rows by F(4, 3) took 1.4 times, 73 of 75 columns 3.7 times as long: elements were looked up."""
    known = knowing(transform(BACK, 32, is_back=True, missing=missing), [None, relax.const(BACK)])
    text = str(schedule_primfunc(known, ONE_CORE).script())
    assert "update" not in text
    assert "matrix[" not in text


def test_one_matrix_everywhere_is_known():
    function = transform(FORTH, 16)
    (known,) = (f for v, f in with_literals(module([(function, FORTH)] * 2)).functions.items() if v.name_hint != "main")
    ((buffer, elements),) = literals_of(known)
    assert buffer.same_as(known.params[1])
    assert np.array_equal(elements, FORTH)


def test_different_matrices_are_not_known():
    function = transform(FORTH, 16)
    mod = with_literals(module([(function, FORTH), (function, -FORTH)]))
    assert not any(literals_of(f) for v, f in mod.functions.items() if v.name_hint != "main")


@pytest.mark.parametrize("matrix", [np.ones((4, 4), "float32"), np.zeros((16, 16), "float32")], ids=["full", "large"])
def test_matrices_that_would_not_gain_are_not_known(matrix):
    function = transform(matrix, 16)
    assert not literals_of(knowing(function, [None, relax.const(matrix)]))


def test_calls_in_branches_count():
    """Another matrix that is given in one branch of an If."""
    function = transform(FORTH, 16)
    ty = relax.TensorType(list(function.params[2].shape), "float32")
    x, condition = relax.Var("x", relax.TensorType([22, 16], "float32")), relax.Var("c", relax.TensorType([], "bool"))
    builder = relax.BlockBuilder()
    callee = builder.add_func(function, "transform")
    one, other = (relax.call_tir(callee, relax.Tuple([x, relax.const(m)]), ty) for m in (FORTH, -FORTH))
    with builder.function("main", [x, condition]):
        builder.emit_func_output(builder.emit(relax.If(condition, one, other)))
    mod = with_literals(builder.get())
    assert not any(literals_of(f) for v, f in mod.functions.items() if v.name_hint != "main")


def test_functions_that_others_may_call_stay_as_they_are():
    mod = module([(transform(FORTH, 16), FORTH)])
    ((var, function),) = [(v, f) for v, f in mod.functions.items() if v.name_hint != "main"]
    mod.update_func(var, function.with_attr("global_symbol", "transform"))
    assert not literals_of(with_literals(mod)[var])


def test_joined_kernels_know_only_what_all_their_calls_share():
    """Two pairs of the same functions, joined into one kernel each, with matrices of their own."""
    first = transform(FORTH, 4096)
    rows = te.placeholder((6, 5, 4096), name="rows")
    given_matrix = te.placeholder((6, 6), name="matrix")
    k = te.reduce_axis((0, 6), "k")
    result = te.compute((6, 5, 4096), lambda p, y, x: te.sum(rows[k, y, x] * given_matrix[p, k], axis=k))
    second = te.create_prim_func([rows, given_matrix, result], index_dtype_override="int64")
    ty = relax.TensorType([6, 5, 4096], "float32")
    builder = relax.BlockBuilder()
    callees = [builder.add_func(f.without_attr("global_symbol"), "transform") for f in (first, second)]
    x = relax.Var("x", relax.TensorType([22, 4096], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = []
            for sign in (1, -1):
                y = x
                for callee in callees:
                    matrix = relax.const(FORTH * np.float32(sign) + np.float32(sign == -1) * np.eye(6, dtype="float32"))
                    y = builder.emit(relax.call_tir(callee, relax.Tuple([y, matrix]), ty))
                made.append(y)
            out = builder.emit_output(relax.Tuple(made))
        builder.emit_func_output(out)
    data = np.random.default_rng(0).standard_normal((22, 4096)).astype("float32")
    results = relax.VirtualMachine(lower(builder.get()), tvm.cpu())["main"](tvm.runtime.tensor(data))
    windows = np.stack([data[4 * y : 4 * y + 6] for y in range(5)])
    for matrix, found in zip((FORTH, np.eye(6, dtype="float32") - FORTH), results, strict=True):
        expected = np.einsum("pk,kyx->pyx", matrix, np.einsum("ak,ykx->ayx", matrix, windows))
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-2, rtol=1e-3)
