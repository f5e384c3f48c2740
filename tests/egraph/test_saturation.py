"""What is wanted can always be made: chains of views, pads and crops without an op between them.

Each of these was an ``ExtractionError`` in a random program: no op in the chain, so nobody wanted the plain tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from compare import assert_same_fast
from programs import program
from tvm.relax import op

import eqsat_layout
from eqsat_layout.egraph.engine import Engine
from eqsat_layout.egraph.rules import read_all, rule_files

Step = Callable[[Any], Any]


def permuted(x: Any) -> Any:
    return op.permute_dims(x)


def halves(x: Any) -> Any:
    """Rows to columns of pairs: cuts through the digits of what comes before."""
    rows, columns = (int(e) for e in x.ty.shape.values)
    return op.reshape(x, (columns, rows))


def padded(x: Any) -> Any:
    return op.nn.pad(x, [1, 0, 0, 2])


def cropped(x: Any) -> Any:
    return op.strided_slice(x, [0, 1], [1, 0], [int(x.ty.shape.values[0]), int(x.ty.shape.values[1]) - 1])


def flattened(x: Any) -> Any:
    return op.reshape(x, (-1, 1))


@pytest.mark.parametrize(
    "steps",
    [
        (permuted, halves, permuted),
        (permuted, halves, permuted, halves),
        (halves, permuted, flattened),
        (padded, permuted, cropped, flattened),
        (padded, permuted, halves),
        (cropped, permuted, flattened),
        (cropped, halves, padded, permuted),
        (permuted, cropped, cropped, padded),
        (padded, padded, permuted, cropped, cropped),
        (permuted, halves, cropped, halves, permuted, padded, flattened),
    ],
)
@pytest.mark.parametrize("after", [False, True])
def test_chains_of_rewrites(steps: tuple[Step, ...], after: bool) -> None:
    def body(builder: Any, x: Any) -> Any:
        y = x
        for step in steps:
            y = builder.emit(step(y))
        dead = builder.emit(op.permute_dims(builder.emit(op.exp(x))))
        return builder.emit(op.nn.relu(y)) if after else y, builder.emit(op.permute_dims(dead))

    mod = program(body, (6, 4))
    optimized = eqsat_layout.optimize(mod)
    assert_same_fast(mod, optimized)


def test_facts_keep_names_that_hold_separators() -> None:
    names = ["plain", "tab\there", "two\nlines", 'quotes " and \\t backslash', "\\", "é (a b) ; c", "cr\r", "\x0b\x0c"]
    engine = Engine(read_all(rule_files()))
    engine.load({"is": [(name, "x") for name in names]})
    assert sorted(engine.tables().rows("is")) == sorted((name, "x") for name in names)
