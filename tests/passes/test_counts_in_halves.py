"""Counts of elements that TVM multiplies as halves."""

from __future__ import annotations

from typing import Any

from programs import constant, program
from tvm import te, tirx
from tvm.relax import op

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.tir.counts_in_halves import with_wide_counts
from eqsat_layout.tir.structural import nodes_of

WIDE = (1, 1, 300, 220)
"""More elements of a channel than the greatest half."""


def normed(builder: Any, x: Any) -> Any:
    return builder.emit(op.nn.instance_norm(x, constant(1, dtype="float16"), constant(1, dtype="float16"), 1, [2, 3]))


def test_no_count_is_left_in_halves() -> None:
    made = legalize(program(normed, WIDE, dtype="float16"))
    functions = [one for one in made.functions.values() if isinstance(one, tirx.PrimFunc)]
    counts = [one for func in functions for one in nodes_of(func.body, tirx.FloatImm) if one.value in WIDE[2:]]
    assert counts
    assert {str(one.ty.dtype) for one in counts} == {"float32"}


def test_products_of_values_stay_halves() -> None:
    """They are what the user rounds."""
    x = te.placeholder((8,), "int32", "x")
    square = te.compute((8,), lambda i: (x[i].astype("float16") * x[i].astype("float16")).astype("float32"))
    func = te.create_prim_func([x, square])
    assert with_wide_counts(func).same_as(func)
