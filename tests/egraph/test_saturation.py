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
from eqsat_layout.egraph.foresight import Foresight
from eqsat_layout.egraph.names import Names
from eqsat_layout.egraph.rules import read_all, rule_files
from eqsat_layout.egraph.saturate import saturate
from eqsat_layout.egraph.saturated import Saturated
from eqsat_layout.graph.importer import import_module
from eqsat_layout.implementations.collect import make_offers
from eqsat_layout.implementations.offers import Offers
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

    saturated = saturated_of(program(body, (1, 32, 14, 14)))
    variants = {v.key: v for v in saturated.names.variants.values()}.values()
    counts = Counter(saturated.names.formats[v.result].shape for v in variants if "relu" in v.signature)
    assert counts[32, 32, 3, 3] == 1
    assert counts[1, 32, 14, 14] > 1


def saturated_of(module: Any) -> Saturated:
    program_read = import_module(module)
    (graph,) = program_read.graphs
    offers = make_offers(program_read, target(), None, spoken_for=())
    return saturate(graph, program_read.signatures, read_all(rule_files()), offers=offers)


def rows_of(saturated: Saturated) -> dict[str, set[tuple[str, ...]]]:
    """The questions that were asked, and the formats and variants that were found."""
    found = {name: set(saturated.tables.rows(name)) for name in saturated.tables.names if name.startswith("ask-")}
    variants = {(v.signature, *v.operands, v.result) for v in saturated.names.variants.values()}
    wanted = Counter(fmt for _, fmt in saturated.tables.rows("want"))
    return found | {"variants": variants, "want": {(fmt, str(n)) for fmt, n in wanted.items()}}


def chain(builder: Any, x: Any) -> Any:
    """A convolution, and behind it ops, a view and a product in a row."""
    y = builder.emit(op.nn.conv2d(x, relax.const(np.ones((32, 16, 3, 3), "float32")), padding=1))
    for step in (op.nn.relu, op.exp, op.tanh, op.sigmoid):
        y = builder.emit(step(y))
    y = builder.emit(op.reshape(builder.emit(op.nn.max_pool2d(y, (2, 2), (2, 2))), (1, 32, 49)))
    return builder.emit(op.nn.relu(builder.emit(op.matmul(y, relax.const(np.ones((49, 16), "float32"))))))


def norms(builder: Any, x: Any) -> Any:
    """Ops of several results, pads and crops, which are left to the rounds."""
    vector = relax.const(np.ones(16, "float32"))
    y = builder.emit(op.nn.batch_norm(x, *[vector] * 4, axis=1, training=False)[0])
    a, b = (builder.emit(part) for part in op.split(builder.emit(op.nn.pad(y, [0, 0, 0, 0, 1, 1, 1, 1])), 2, 1))
    z = builder.emit(op.nn.conv2d(builder.emit(op.add(a, b)), relax.const(np.ones((8, 8, 1, 1), "float32"))))
    return builder.emit(op.strided_slice(z, [2, 3], [1, 1], [15, 15]))


@pytest.mark.parametrize("body", [chain, norms])
def test_to_foresee_what_rules_ask_changes_nothing_but_the_rounds(
    monkeypatch: pytest.MonkeyPatch, body: Callable[..., Any]
) -> None:
    module = program(body, (1, 16, 14, 14))
    found = saturated_of(module)
    monkeypatch.setattr(Foresight, "questions", lambda _: [])
    asked = saturated_of(module)
    assert rows_of(found) == rows_of(asked)
    assert found.rounds <= asked.rounds
    if body is chain:
        assert found.rounds + 3 <= asked.rounds


def test_what_has_become_a_constant_asks_for_no_layouts() -> None:
    """ONNX has the bias of a convolution reshaped: what adds it was asked for a flow from each layout of it."""
    bias = np.ones(32, "float32")

    def asked(shaped: Callable[[Any], Any]) -> set[tuple[str, ...]]:
        def body(builder: Any, x: Any) -> Any:
            y = builder.emit(op.nn.conv2d(x, relax.const(np.ones((32, 16, 3, 3), "float32")), padding=1))
            return builder.emit(op.nn.relu(builder.emit(op.add(y, shaped(builder)))))

        rows = saturated_of(program(body, (1, 16, 14, 14))).tables.rows("ask-fwd")
        return {(operand, fmt) for key, operand, fmt in rows if "add" in key}

    reshaped = asked(lambda builder: builder.emit(op.reshape(relax.const(bias), (1, 32, 1, 1))))
    assert reshaped == asked(lambda _: relax.const(bias.reshape(1, 32, 1, 1)))


def test_weights_that_have_become_constants_ask_for_layouts_still() -> None:
    """Behind weights of another order convolutions were planned up to 1.36 times dearer: with what they read there,
    they run in other layouts of their data too."""

    def body(builder: Any, x: Any, y: Any) -> Any:
        kernel = builder.emit(op.permute_dims(relax.const(np.ones((3, 3, 30, 24), "float32")), [3, 2, 0, 1]))
        z = builder.emit(op.nn.conv2d(builder.emit(op.add(x, y)), kernel, padding=1))
        return builder.emit(op.nn.softmax(z, 3))

    tables = saturated_of(program(body, *[(1, 30, 5, 5)] * 2)).tables
    assert any("conv2d" in key and operand == 1 for key, operand, _ in tables.rows("ask-fwd"))


def test_flows_told_by_one_buffer_leave_the_others_every_memory() -> None:
    """A relu that was asked for images of its data was never asked what else may be read for a result in a buffer: its
    own data, of which the first flow had told, stayed where the result was."""
    signatures = import_module(program(lambda b, x: b.emit(op.nn.relu(x)), (1, 16, 8, 8))).signatures
    (key,) = signatures
    blocks = index_map_from_names("NCHW", "NCHW4c", (1, 16, 8, 8))
    assert blocks is not None
    gpu = target({"kind": "opencl", "profile": "adreno6xx"})

    def read(*, is_told: bool) -> set[tuple[str, ...]]:
        names = Names()
        answers = Answers(signatures, names, offers=Offers(placement=gpu))
        fmt = names.format(Format.make(blocks))
        if is_told:
            answers.answer_fwd(key, 0, fmt)
        rows = [row for name, row in answers.answer_back(key, fmt) if name == "back"]
        return {(*names.variants[row[2]].operands, names.variants[row[2]].result) for row in rows}

    assert read(is_told=True) == read(is_told=False)
    assert len(read(is_told=True)) > 1
