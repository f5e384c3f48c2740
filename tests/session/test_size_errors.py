"""Sizes that do not fit together, which only a run can tell."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import eqsat_layout
from eqsat_layout.errors import InputError
from eqsat_layout.passes.fitting_sizes import check_sizes_fit


def module() -> tvm.IRModule:
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    x, y = relax.Var("x", relax.TensorType([n, 4], "float32")), relax.Var("y", relax.TensorType([m, 4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        longer = builder.emit(relax.op.concat([x, x]))
        same = builder.match_cast(y, relax.TensorType([2 * n, 4], "float32"))
        builder.emit_func_output(builder.emit(relax.op.add(longer, same)))
    return builder.get()


def test_sizes_that_do_not_fit_together_are_named() -> None:
    """A raw RuntimeError of TVM's machine, with a pointer into its heap."""
    session = eqsat_layout.Session(module())
    x = np.ones((3, 4), "float32")
    np.testing.assert_array_equal(session.run(None, {"x": x, "y": np.ones((6, 4), "float32")})[0], np.full((6, 4), 2))
    said = "where 'x' is float32 (3, 4), 'y' is float32 (5, 4), axis 0 of a tensor"
    with pytest.raises(InputError, match=re.escape(said) + r".* is 5, not 6"):
        session.run(None, {"x": x, "y": np.ones((5, 4), "float32")})


def reshaping(*sizes: Any) -> tvm.IRModule:
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([n, 4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            rows = builder.emit(relax.op.reshape(builder.emit(relax.op.add(x, x)), [size(n) for size in sizes]))
            made = builder.emit_output(builder.emit(relax.op.add(rows, rows)))
        builder.emit_func_output(made)
    return builder.get()


@pytest.mark.parametrize(
    ("module", "fits", "said"),
    [
        (reshaping(lambda _: 6, lambda _: 2), 3, "have to be equal are not: tensors differ by 8"),
        (reshaping(lambda n: n * 4 // 3, lambda _: 3), 6, "have to be equal are not: tensors differ by 2"),
    ],
    ids=["to numbers", "to what is left"],
)
def test_a_reshape_that_does_not_fit_is_an_error(module: tvm.IRModule, fits: int, said: str) -> None:
    """As in TVM, elements were left out, or others read: results of the wrong sizes without a word."""
    session = eqsat_layout.Session(module)
    x = np.arange(4 * fits, dtype="float32").reshape(fits, 4)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0].ravel(), 4 * x.ravel())
    with pytest.raises(InputError, match=said):
        session.run(None, {"x": np.ones((5, 4), "float32")})


def test_a_reshape_that_is_known_to_fit_is_not_checked() -> None:
    mod = reshaping(lambda n: 2 * n, lambda _: 2)
    assert check_sizes_fit(mod) is mod or tvm.ir.structural_equal(check_sizes_fit(mod), mod)


def of_two(make: Any, *shapes: Any) -> tvm.IRModule:
    params = [relax.Var(f"x{at}", relax.TensorType(shape, "float32")) for at, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            made = builder.emit_output(make(*params))
        builder.emit_func_output(made)
    return builder.get()


N, K, J = (tirx.Var(name, "int64") for name in "nkj")


def padded(x: Any, w: Any) -> Any:
    return relax.op.nn.conv2d(x, w, padding=1)


@pytest.mark.parametrize(
    ("mod", "differs"),
    [
        (of_two(relax.op.matmul, [N, K], [J, 4]), "k - j"),
        (of_two(relax.op.matmul, [N, K], [K, 4]), ""),
        (of_two(relax.op.matmul, [N, 3], [3, 4]), ""),
        (of_two(padded, [N, K, 5, 5], [2, 3, 3, 3]), "k - 3"),
        (of_two(relax.op.nn.conv1d_transpose, [N, K, 5], [J, 2, 3]), "k - j"),
        (of_two(relax.op.nn.conv1d_transpose, [N, K, 5], [3, 2, 3]), "k - 3"),
        (of_two(relax.op.nn.conv1d_transpose, [N, K, 5], [K, 2, 3]), ""),
    ],
)
def test_what_is_summed_over_is_checked_to_be_as_long_in_all_operands(mod: tvm.IRModule, differs: str) -> None:
    """What lies behind the shorter one was read: ``(2, 4) @ (3, 4)`` gave numbers, transposed convolutions ended the
    process."""
    text = check_sizes_fit(mod).script()
    assert ("R.match_cast" in text) == bool(differs)
    assert f"R.shape([{differs}])" in text or not differs


def test_operands_of_other_lengths_are_errors() -> None:
    session = eqsat_layout.Session(of_two(relax.op.matmul, [N, K], [3, 4]))
    x, w = np.ones((2, 3), "float32"), np.ones((3, 4), "float32")
    np.testing.assert_allclose(session.run(None, {"x0": x, "x1": w})[0], x @ w)
    with pytest.raises(InputError, match=r"where 'x0' is float32 \(2, 4\), .* differ by 1"):
        session.run(None, {"x0": np.ones((2, 4), "float32"), "x1": w})


def test_an_input_that_is_no_multiple_of_another_one_is_named() -> None:
    """A raw RuntimeError of TVM's machine: what it checks of parameters is written in another way."""
    n = tirx.Var("n", "int64")
    x, y = relax.Var("x", relax.TensorType([2 * n], "float32")), relax.Var("y", relax.TensorType([n], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        builder.emit_func_output(builder.emit(relax.op.add(y, y)))
    session = eqsat_layout.Session(builder.get(), candidates=False)
    with pytest.raises(InputError, match=r"axis 0 of 'x', R\.Tensor\(\(2 \* n,\).* is 7, not 6"):
        session.run(None, {"x": np.ones(7, "float32"), "y": np.ones(3, "float32")})
