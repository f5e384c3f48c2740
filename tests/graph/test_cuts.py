"""Buffers are cut at every digit of their maps, and are read as they are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import ops, program
from tvm import relax
from tvm.relax import op

from eqsat_layout.graph.cuts import cut_alike
from eqsat_layout.graph.emit import emit_module
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.importer import import_module
from eqsat_layout.graph.steps import Convert, Given, Run, Steps
from eqsat_layout.maps import Format, IndexMap
from eqsat_layout.passes.evaluate import evaluate
from eqsat_layout.targets.lowering import lower
from eqsat_layout.tir.flow import Flow

SHAPE = (2, 3, 4, 5)


def grouped(shape: tuple[int, ...], order: tuple[int, ...], ends: tuple[int, ...] = (), units: int = 0) -> Format:
    """Axes in such an order, each that is in ``ends`` as one with the next one, and so many axes of one element."""
    rows: list[list[Any]] = [[] for _ in range(units)]
    is_open = False
    for axis in order:
        digit = (axis, 1, shape[axis])
        if is_open:
            rows[-1].append(digit)
        else:
            rows.append([digit])
        is_open = axis in ends
    return Format.make(IndexMap.make(shape, rows))


def relus(shape: tuple[int, ...], count: int) -> tuple[Any, Any]:
    """So many of them, one after the other; and the module imported."""

    def body(builder: Any, x: Any) -> Any:
        for _ in range(count - 1):
            x = builder.emit(op.nn.relu(op.negative(x)))
        return op.nn.relu(op.negative(x))

    mod = program(body, shape)
    return mod, import_module(mod)


def chain(imported: Any, formats: list[Format]) -> Steps:
    """``negative`` and ``relu`` from each of the formats to itself, in turns, with rewrites around."""
    (graph,) = imported.graphs
    ty = TensorType(SHAPE, "float32")
    x = next(i for i, node in enumerate(graph.nodes) if node.kind == "param")
    keys = [node.signature for node in graph.nodes if node.signature in imported.signatures]
    steps: list[Any] = [Given(0, x)]
    before, store = Format.row_major(SHAPE), 0
    for fmt, key in zip([*formats, before], [*keys, None], strict=True):
        steps.append(Convert(store + 1, store, ty, before, fmt))
        store += 1
        if key is not None:
            steps.append(Run(store + 1, key, Flow((fmt,), (fmt,), ()), (store,)))
            store += 1
        before = fmt
    return Steps(steps, [store], {0: x}, dict.fromkeys(range(store + 1), x))


cuts = st.builds(
    grouped, st.just(SHAPE), st.just((0, 2, 3, 1)), st.sets(st.sampled_from((0, 2, 3))).map(tuple), st.integers(0, 2)
)


@settings(max_examples=8, deadline=None)
@given(st.lists(cuts, min_size=4, max_size=4))
def test_no_reshapes_are_left_between_ops(formats: list[Format]) -> None:
    mod, imported = relus(SHAPE, 2)
    steps = chain(imported, formats)
    shapes = {
        s.flow.results[0].physical_shape for s in cut_alike(steps, imported.signatures).steps if isinstance(s, Run)
    }
    (shape,) = shapes
    assert tuple(extent for extent in shape if extent > 1) == (2, 4, 5, 3)
    emitted = emit_module(mod, [(imported.graphs[0], steps)], imported.signatures, evaluate)
    assert "reshape" not in ops(emitted)
    value = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")
    expected = np.maximum(-np.maximum(-value, 0), 0)
    found = relax.VirtualMachine(lower(emitted), tvm.cpu())["main"](tvm.runtime.tensor(value)).numpy()
    np.testing.assert_array_equal(found, expected)


def test_goals_and_row_major_buffers_keep_their_shape() -> None:
    _, imported = relus(SHAPE, 2)
    plain = Format.row_major(SHAPE)
    steps = chain(imported, [plain] * 4)
    assert cut_alike(steps, imported.signatures) == steps


@pytest.mark.parametrize(("ends", "shape"), [((0,), (2, 2, 3)), ((), (4, 3))], ids=["cut for both", "whole for one"])
def test_no_reader_has_to_divide(ends: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """An axis of four that another op sees as two axes of two: window partitions of MaxViT before a convolution."""
    _, imported = relus((2, 2, 3), 1)
    (graph,) = imported.graphs
    x = next(i for i, node in enumerate(graph.nodes) if node.kind == "param")
    key = next(node.signature for node in graph.nodes if node.signature in imported.signatures)
    written = grouped((2, 2, 3), (0, 1, 2), (0,))
    read = (
        grouped((2, 2, 3), (0, 1, 2), (0,)) if ends else Format.make(IndexMap.make((4, 3), [[(0, 1, 4)], [(1, 1, 3)]]))
    )
    ty = TensorType((2, 2, 3), "float32")
    steps = Steps(
        [
            Given(0, x),
            Run(1, key, Flow((Format.row_major((2, 2, 3)),), (written,), ()), (0,)),
            Run(2, key, Flow((read,), (read,), ()), (1,)),
            Convert(3, 2, ty, read, read),
        ],
        [3],
        {0: x},
        dict.fromkeys(range(4), x),
    )
    (first, _) = (step for step in cut_alike(steps, imported.signatures).steps if isinstance(step, Run))
    assert first.flow.results[0].physical_shape == shape
