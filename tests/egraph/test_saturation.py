"""What is wanted can always be made: chains of views, pads and crops without an op between them.

Each of these was an ``ExtractionError`` in a random program: no op in the chain, so nobody wanted the plain tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compare import assert_same_fast
from programs import program
from tvm import relax
from tvm.relax import op

import eqsat_layout
from eqsat_layout.egraph.answers import Answers
from eqsat_layout.egraph.engine import Engine
from eqsat_layout.egraph.names import Names
from eqsat_layout.egraph.rules import read_all, rule_files
from eqsat_layout.egraph.saturate import saturate
from eqsat_layout.graph.importer import import_module
from eqsat_layout.implementations.collect import make_offers
from eqsat_layout.maps import Format, index_map_from_names
from eqsat_layout.targets.registry import target

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


def test_results_follow_the_flow_that_asked_for_them() -> None:
    """Means in blocks, as a flow from the data had them, gave the data two more layouts: 124 flows in DenseNet-121."""

    def body(builder: Any, x: Any, *vectors: Any) -> Any:
        norm = builder.emit(op.nn.batch_norm(x, *vectors, axis=1, training=False))
        return builder.emit(norm[0])

    known = import_module(program(body, (1, 16, 6, 6), *[(16,)] * 4)).signatures
    (norm,) = (signature for signature in known.values() if signature.is_tuple)
    names = Names()
    answers = Answers(known, names)
    blocks = index_map_from_names("NCHW", "NCHW4c", (1, 16, 6, 6))
    assert blocks is not None

    def written(result: int, fmt: str) -> list[str]:
        return [row[3] for name, row in answers.answer_results(norm.key, result, fmt) if name == "results"]

    (formats,) = written(0, names.format(Format.make(blocks)))
    assert written(1, names.lists[formats][1]) == [formats]


def test_flows_that_move_nothing_are_the_op_as_written() -> None:
    """Means in blocks of channels asked for data in blocks where they stand, and all before it: six rounds more."""
    signatures = import_module(program(lambda b, x: b.emit(op.mean(x, axis=[2, 3])), (1, 16, 6, 6))).signatures
    (key,) = signatures
    names = Names()
    answers = Answers(signatures, names)
    blocks = index_map_from_names("NC", "NC4c", (1, 16))
    assert blocks is not None
    rows = answers.answer_back(key, names.format(Format.make(blocks)))
    read = [names.variants[row[2]].operands for name, row in rows if name == "back"]
    assert read == [("1x16x6x6>1.b/4.c.d.b%4",)]


def test_layouts_do_not_flow_through_what_is_folded() -> None:
    """The relu of a constant is a constant: nobody runs it in any layout. That of the data runs in all that are met."""
    weights = relax.const(np.ones((32, 32, 3, 3), "float32"))

    def body(builder: Any, x: Any) -> Any:
        kernel = builder.emit(op.nn.relu(weights))
        return builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(x, kernel, padding=1))))

    program_read = import_module(program(body, (1, 32, 14, 14)))
    (graph,) = program_read.graphs
    offers = make_offers(program_read, target(), None, spoken_for=())
    saturated = saturate(graph, program_read.signatures, read_all(rule_files()), offers=offers)
    variants = {v.key: v.signature for v in saturated.names.variants.values()}.values()
    counts = Counter(s.results[0].shape for s in map(program_read.signatures.get, variants) if s and "relu" in s.name)
    assert counts[32, 32, 3, 3] == 1
    assert counts[1, 32, 14, 14] > 1
