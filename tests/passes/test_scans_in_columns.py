"""Running sums and products down columns are what TVM's are."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, tirx

import eqsat_layout
from eqsat_layout.passes.scans_in_columns import SCANS
from eqsat_layout.tir.structural import nodes_of

CASES: list[tuple[str, tuple[int, ...], int | None, bool, str, str | None]] = [
    ("cumsum", (5, 700), 0, False, "float32", None),
    ("cumsum", (3, 7, 300), 1, True, "float32", None),
    ("cumsum", (2, 4, 3), -2, False, "int8", "int32"),
    ("cumprod", (6, 257), 0, False, "float16", None),
    ("cumprod", (1, 9, 2), 1, True, "int64", None),
    ("cumsum", (1, 4), 0, True, "float32", None),
    ("cumsum", (4, 5), 1, False, "float32", None),
    ("cumprod", (4, 5), None, True, "float32", None),
]


def expected(name: str, x: Any, axis: int | None, exclusive: bool, dtype: str | None) -> Any:
    x = x if axis is not None else x.ravel()
    axis = axis or 0
    function, neutral = {"cumsum": (np.cumsum, 0), "cumprod": (np.cumprod, 1)}[name]
    given = np.asarray(function(x, axis=axis, dtype=dtype or x.dtype))
    if not exclusive:
        return given
    first = np.full_like(given.take([0], axis), neutral)
    return np.concatenate([first, given.take(range(given.shape[axis] - 1), axis)], axis)


def scans() -> Any:
    """All cases in one module."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{n}", relax.TensorType(shape, dtype)) for n, (_, shape, _, _, dtype, _) in enumerate(CASES)]
    with builder.function("main", params):
        with builder.dataflow():
            made = [
                builder.emit(getattr(relax.op, name)(x, axis, exclusive=exclusive, dtype=dtype))
                for x, (name, _, axis, exclusive, _, dtype) in zip(params, CASES, strict=True)
            ]
            output = builder.emit_output(relax.Tuple(made))
        builder.emit_func_output(output)
    return builder.get()


def test_scans_down_columns() -> None:
    """Of 512 rows of 700 TVM's took 1.5 times as long as OpenVINO's: it goes down one column after the other."""
    legalized = relax.transform.LegalizeOps(SCANS)(scans())
    parallel = [
        int(loop.extent)
        for func in legalized.functions.values()
        if isinstance(func, tirx.PrimFunc)
        for loop in nodes_of(func.body, tirx.For)
        if loop.kind == tirx.ForKind.PARALLEL
    ]
    assert sorted(parallel) == [1, 1, 2, 2, 3, 6]  # pieces of rows; TVM does the last two
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-2, 3, shape).astype(dtype) for _, shape, _, _, dtype, _ in CASES]
    session = eqsat_layout.Session(scans())
    results = session.run(None, {f"x{n}": x for n, x in enumerate(inputs)})
    for (name, _, axis, exclusive, _, dtype), x, got in zip(CASES, inputs, results, strict=True):
        wanted = expected(name, x, axis, exclusive, dtype)
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
