"""What the interpreter says of elements that are not defined: how far they spread, and that no more depends on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from soundness.oracle.as_llvm import Llvm, arrays, undefined_at
from tir.helpers import legal, understood
from tir.poison import padded
from tvm.relax import op as R
from tvm.script import tirx as T

from eqsat_layout.maps import UNDEF
from eqsat_layout.soundness.oracle.tir_interpreter import Masked, run_prim_func
from eqsat_layout.soundness.rules.stored import lay
from eqsat_layout.tir.flow import backward, forward
from eqsat_layout.tir.rewrite import relayout


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
