"""Sorts and first elements are those that NumPy finds, in the order in which equal ones stood."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import eqsat_layout
from eqsat_layout.passes.sorts.first_ones import _step
from eqsat_layout.passes.sorts.kernels import sort_legalisations as legalisations
from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import nodes_of

CASES: list[tuple[str, tuple[int, ...], int, str, bool, int]] = [
    ("topk", (7, 56), -1, "float32", True, 5),  # few of a row
    ("topk", (2, 200), 1, "float16", True, 20),
    ("topk", (3, 130, 2), 1, "int32", False, 3),
    ("topk", (7, 56), -1, "float32", False, 40),  # short rows
    ("sort", (5, 33, 4), 1, "float32", True, 0),
    ("argsort", (6,), 0, "float32", True, 0),
    ("topk", (2, 2500), 1, "float32", True, 700),  # long rows, of which some are selected
    ("topk", (2, 900), 1, "int32", False, 400),
    ("sort", (3, 700), 1, "float32", False, 0),
    ("argsort", (3, 300), 1, "uint8", True, 0),
    ("topk", (2, 40, 37), 1, "float32", True, 5),  # rows across memory
    ("sort", (2, 50, 37), 1, "float32", True, 0),
    ("argsort", (50, 16), 0, "int32", True, 0),
    ("sort", (7, 19), 0, "float16", True, 0),
    ("sort", (9, 16), 0, "uint8", False, 0),
    ("sort", (1, 17), 0, "float32", False, 0),
]


def sorts() -> Any:
    """All cases in one module."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{n}", relax.TensorType(case[1], case[3])) for n, case in enumerate(CASES)]
    with builder.function("main", params):
        with builder.dataflow():
            made = []
            for x, (name, _, axis, _, is_descending, count) in zip(params, CASES, strict=True):
                if name == "topk":
                    both = builder.emit(relax.op.topk(x, count, axis, "both", is_descending, "int64"))
                    made += [builder.emit(relax.TupleGetItem(both, part)) for part in range(2)]
                else:
                    dtype = ["int64"] if name == "argsort" else []
                    made.append(builder.emit(getattr(relax.op, name)(x, axis, is_descending, *dtype)))
            output = builder.emit_output(relax.Tuple(made))
        builder.emit_func_output(output)
    return builder.get()


def expected(x: Any, case: tuple[str, tuple[int, ...], int, str, bool, int]) -> list[Any]:
    name, shape, axis, _, is_descending, count = case
    wide = x.astype("float64") * (-1 if is_descending else 1)  # NaN is last to NumPy, and the largest number here
    wide = np.where(np.isnan(wide), -np.inf if is_descending else np.inf, wide)
    places = np.argsort(wide, axis, kind="stable").take(range(count or shape[axis]), axis)
    values = np.take_along_axis(x, places, axis)
    return {"topk": [values, places], "sort": [values], "argsort": [places]}[name]


@pytest.mark.parametrize("is_of_few", [True, False])
def test_sorts_are_stable(is_of_few: bool) -> None:
    """Of few different numbers, with zeros of both signs; and of many, with NaN of both signs among floats."""
    rng = np.random.default_rng(0)
    inputs = []
    for _, shape, _, dtype, _, _ in CASES:
        x = (rng.integers(0, 5, shape) if is_of_few else rng.normal(100, 90, shape).clip(0, 255)).astype(dtype)
        if dtype != "uint8":
            x = x * rng.choice([-1, 1], shape).astype(dtype)
        if dtype.startswith("float") and not is_of_few:
            x = np.where(rng.random(shape) < 0.05, np.copysign(np.nan, x), x).astype(dtype)
        inputs.append(x)
    results = iter(eqsat_layout.Session(sorts()).run(None, {f"x{n}": x for n, x in enumerate(inputs)}))
    for x, case in zip(inputs, CASES, strict=True):
        for wanted in expected(x, case):
            got = next(results)
            assert got.dtype == wanted.dtype
            np.testing.assert_array_equal(got, wanted, str(case))


def test_zeros_of_both_signs_keep_their_order_where_results_are_exact() -> None:
    """They were sorted by their signs where rows lie across memory and only values are asked for."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((9, 40), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            sorted_ = builder.emit_output(builder.emit(relax.op.sort(x, 0)))
            first = builder.emit_output(builder.emit(relax.op.topk(x, 3, 0, "values", largest=True)))
        builder.emit_func_output(relax.Tuple([sorted_, first]))
    given = np.random.default_rng(0).choice(np.float32([-1, -0.0, 0.0, 1]), (9, 40))
    both = eqsat_layout.Session(builder.get(), approx=False).run(None, {"x": given})
    places = np.argsort(given, 0, kind="stable"), np.argsort(-given, 0, kind="stable")[:3]
    for got, own in zip(both, places, strict=True):
        assert got.tobytes() == np.take_along_axis(given, own, 0).tobytes()


@pytest.mark.parametrize("whole", [1, 2, 3, 8, 9, 15, 100, 15625])
def test_first_ones_are_not_looked_for_in_the_order_of_memory(whole: int) -> None:
    """Where rows grow, each element took a place: the first 1000 of a million took 94 times as long as otherwise."""
    step = _step(whole)
    blocks = [n * step % whole for n in range(whole)]
    assert sorted(blocks) == list(range(whole))
    taken = sum(block >= max(blocks[:n], default=-1) for n, block in enumerate(blocks))
    assert taken <= 3 + whole // 8


def test_no_sort_of_a_library_is_called() -> None:
    """The first 5 of rows of 56 took 1.9 times as long as OpenVINO's: TVM's library sorts whole rows, in pairs."""
    legalized = relax.transform.LegalizeOps(legalisations(exact=False))(sorts())
    kernels = [func for func in legalized.functions.values() if isinstance(func, tirx.PrimFunc)]
    assert len(kernels) == len(CASES)
    for func in kernels:
        assert not [call for call in nodes_of(func.body, tvm.ir.Call) if is_call(call, "tirx.tvm_call_packed")]
        assert any(loop.kind == tirx.ForKind.PARALLEL for loop in nodes_of(func.body, tirx.For))


def test_others_are_left_to_tvm() -> None:
    """Keys of 64 bits, and of sizes that are not known."""
    size = tirx.Var("n", "int64")
    for shape, dtype in (((4, 5), "int64"), ((4, size), "float32")):
        builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, dtype))
        with builder.function("main", [x]):
            builder.emit_func_output(builder.emit(relax.op.sort(x, -1)))
        legalized = relax.transform.LegalizeOps(legalisations(exact=False))(builder.get())
        assert not any(isinstance(func, tirx.PrimFunc) for func in legalized.functions.values())
