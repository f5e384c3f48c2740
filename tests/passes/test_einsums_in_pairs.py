"""Einsums of several operands are done two at a time, the cheapest pair first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import eqsat_layout
from eqsat_layout.passes.einsums_in_pairs import einsums_in_pairs
from eqsat_layout.targets.lowering import prepared
from eqsat_layout.targets.registry import target
from eqsat_layout.tir.structural import nodes_of


def einsum(equation: str, shapes: list[tuple[int, ...]], dtype: str = "float32") -> Any:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{n}", relax.TensorType(shape, dtype)) for n, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(relax.op.einsum(params, equation))
        builder.emit_func_output(output)
    return builder.get()


def steps(mod: Any) -> list[str]:
    return [str(call.attrs.subscripts) for call in nodes_of(mod["main"], tvm.ir.Call) if "einsum" in str(call.op)]


@pytest.mark.parametrize(
    ("equation", "shapes", "wanted"),
    [
        ("bij,bjk,kl->bil", [(2, 9, 3), (2, 3, 7), (7, 4)], ["bjk,kl->bjl", "bij,bjl->bil"]),
        ("ij,jk,kl", [(2, 3), (3, 50), (50, 40)], ["ij,jk->ik", "ik,kl->il"]),
        ("i,i,j->j", [(5,), (5,), (4,)], ["i,i->", ",j->j"]),
    ],
)
def test_einsums_of_three(equation: str, shapes: list[tuple[int, ...]], wanted: list[str]) -> None:
    """One of three operands took 14 times as long as ONNX Runtime's: it multiplied all three for each element."""
    assert steps(einsums_in_pairs(einsum(equation, shapes))) == wanted
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    (got,) = eqsat_layout.Session(einsum(equation, shapes)).run(None, {f"x{n}": x for n, x in enumerate(inputs)})
    np.testing.assert_allclose(got, np.einsum(equation, *inputs), rtol=1e-5, atol=1e-5)


def test_what_lies_between_is_wide() -> None:
    """60 * 60 * 64 is no float16: results were infinite that are 1152."""
    shapes: list[tuple[int, ...]] = [(4, 64), (64, 5), (5, 6)]
    inputs = {
        f"x{n}": np.full(shape, value, "float16")
        for n, (shape, value) in enumerate(zip(shapes, (60, 60, 1e-3), strict=True))
    }
    (got,) = eqsat_layout.Session(einsum("ij,jk,kl->il", shapes, "float16")).run(None, inputs)
    assert got.dtype == "float16"
    np.testing.assert_allclose(got, np.full((4, 6), 1152), rtol=1e-3)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk,kl->ill", [(2, 3), (3, 4), (4, 5)]),
        ("bA,Ac,cB", [(2, 3), (3, 4), (4, 5)]),
        ("ij,j,->i", [(2, 3), (3,), ()]),
        ("abc,cd,ad->b", [(2, 3, 4), (4, 5), (2, 5)]),
        ("ij,jk,kl->il", [(2, 0), (0, 4), (4, 5)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 0)]),
    ],
)
def test_integers_wrap_around_in_any_order(equation: str, shapes: list[tuple[int, ...]], dtype: str) -> None:
    mod, rng, ends = einsum(equation, shapes, dtype), np.random.default_rng(0), np.iinfo(dtype)
    assert len(steps(einsums_in_pairs(mod))) == 2
    inputs = [np.asarray(rng.integers(ends.min, ends.max, shape, dtype)) for shape in shapes]
    (got,) = eqsat_layout.Session(mod).run(None, {f"x{n}": x for n, x in enumerate(inputs)})
    left, arrow, result = equation.partition("->")
    letters = "".join(dict.fromkeys(result)) if arrow else "".join(sorted(c for c in {*left} if left.count(c) == 1))
    expected = np.einsum(f"{left}->{letters}", *(x.astype("int64") for x in inputs)).astype(dtype)
    if len(set(result)) < len(result):  # NumPy knows no letter twice in a result
        got = np.einsum(f"{result}->{letters}", got)
    np.testing.assert_array_equal(got, expected)


def test_exact_einsums_stay() -> None:
    """They add up as written."""
    mod = einsum("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)])
    for approx, count in ((False, 1), (True, 2)):
        assert len(steps(prepared(mod, target("llvm", approx=approx)))) == count


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("...ij,jk,kl->...il", [(2, 2, 3), (3, 4), (4, 5)]),
        ("ii,ij,jk->ik", [(3, 3), (3, 4), (4, 5)]),
    ],
)
def test_what_stays(equation: str, shapes: list[tuple[int, ...]]) -> None:
    mod = einsum(equation, shapes)
    assert einsums_in_pairs(mod).same_as(mod)
