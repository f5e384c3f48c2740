"""Algorithms that can't pay are left out before their graphs are built; why is told, and no plan misses them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from conv_calls import called, recognised
from hypothesis import example, given, settings
from hypothesis import strategies as st
from programs import AVX2, constant, program
from tvm.relax import op

import eqsat_layout
from eqsat_layout.cost.database import Database
from eqsat_layout.graph.importer import import_module
from eqsat_layout.implementations.algorithms import ALGORITHMS
from eqsat_layout.planning import search
from eqsat_layout.planning.plan_space import PlanSpace
from eqsat_layout.targets.registry import target

ICE_LAKE = {"kind": "llvm", "mcpu": "icelake-server"}
PRICED = {a.name: a for a in ALGORITHMS if a.work is not None}


def convolution(channels: int, outputs: int, size: int, window: int, stride: int = 1) -> Any:
    def body(builder: Any, x: Any) -> Any:
        weights = constant(outputs, channels, window, window)
        return builder.emit(op.nn.conv2d(x, weights, strides=stride, padding=window // 2))

    return program(body, (1, channels, size, size))


@settings(max_examples=15, deadline=None)
@given(
    st.integers(4, 9),
    st.integers(4, 9),
    st.tuples(st.integers(7, 13), st.integers(7, 13)),
    st.sampled_from([(3, 3), (1, 3), (5, 5), (2, 2), (3, 1), (7, 7)]),
    st.sampled_from([(1, 1), (2, 2), (1, 2)]),
)
@example(5, 6, (9, 10), (3, 3), (1, 1))
@example(5, 6, (9, 10), (1, 3), (1, 1))
@example(5, 6, (9, 10), (3, 3), (2, 2))
@example(5, 6, (9, 10), (1, 3), (2, 2))
def test_the_work_is_that_of_the_graph(
    channels: int, outputs: int, size: tuple[int, int], window: tuple[int, int], strides: tuple[int, int]
) -> None:
    """Of its products, flops and what they read and write; nothing of the transforms is counted."""
    call, _ = called(
        (1, channels, *size), (outputs, channels, *window), strides=strides, padding=[w // 2 for w in window]
    )
    conv = recognised(call)
    modules = {name: algorithm.of(conv) for name, algorithm in PRICED.items()}
    assert modules["im2col"] is not None
    for name, module in modules.items():
        if module is None:
            continue
        work = PRICED[name].work(conv)  # type: ignore[misc]
        (product,) = [
            s
            for s in import_module(module).signatures.values()
            if s.name in ("relax.matmul", "subsampled") or "product" in s.name
        ]
        assert product.computation is not None
        assert product.computation.flops == work.flops
        data, weights = (math.prod(ty.shape) for ty in product.operands if ty is not None)
        written = sum(math.prod(ty.shape) for ty in product.results if ty is not None)
        assert work.weights == weights
        assert work.between == (data + written if name.startswith("winograd") else data)


@pytest.mark.parametrize(("size", "window", "stride"), [(28, 3, 1), (28, 3, 2), (28, 1, 2), (14, 5, 1), (7, 3, 1)])
def test_a_plan_costs_what_it_would_with_all_algorithms(
    size: int, window: int, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mod = convolution(64, 96, size, window, stride)
    plan = eqsat_layout.plan(mod, AVX2)
    every = search.make_offers
    monkeypatch.setattr(search, "make_offers", lambda *args, prices, **more: every(*args, **more))
    assert eqsat_layout.plan(mod, AVX2).cost == plan.cost


def test_it_is_told_why_one_was_left_out() -> None:
    refused = eqsat_layout.plan(convolution(64, 64, 28, 3), AVX2).why_not("conv2d")
    reasons = {r.layout: r.reason for r in refused if r.index_map is None}
    assert "us or more, and the op in the best of its layouts" in reasons["im2col"]
    assert "us or more, and winograd F(4,3)" in reasons["winograd F(2,3)"]


@pytest.mark.parametrize("is_made", [True, False])
def test_what_moves_less_of_the_data_is_left_out_where_they_are_made_in_blocks(is_made: bool) -> None:
    """Not where they come from outside, in one layout: then a quarter of them is moved, in place of all."""

    def body(builder: Any, x: Any) -> Any:
        data = builder.emit(op.nn.conv2d(x, constant(64, 64, 1, 1))) if is_made else x
        return builder.emit(op.nn.conv2d(data, constant(96, 64, 1, 1), strides=2))

    refused = eqsat_layout.plan(program(body, (1, 64, 28, 28)), AVX2).why_not("conv2d")
    assert any(r.layout == "subsampled" and "us or more" in r.reason for r in refused) == is_made


def test_constants_may_be_worked_out_from_others() -> None:
    """A bias that ONNX reshapes was taken for data that come in one layout: graphs that no plan used were made."""

    def body(builder: Any, x: Any) -> Any:
        bias = builder.emit(op.reshape(constant(64), (1, 64, 1, 1)))
        data = builder.emit(op.add(builder.emit(op.nn.conv2d(x, constant(64, 64, 1, 1))), bias))
        return builder.emit(op.nn.conv2d(data, constant(96, 64, 1, 1), strides=2))

    offers = search.search_of(program(body, (1, 64, 28, 28)), target(AVX2), {}, Database().read()).offers
    assert any("subsampled" in slower for slower in offers.slower.values())


def test_data_of_a_long_chain_are_followed_to_its_beginning() -> None:
    """It was asked op by op, each within the one before: 200 of them were too deep for Python."""

    def body(builder: Any, x: Any) -> Any:
        data = builder.emit(op.nn.conv2d(x, constant(64, 64, 1, 1)))
        for _ in range(400):
            data = builder.emit(op.add(data, constant(1, 64, 28, 28)))
        return builder.emit(op.nn.conv2d(data, constant(96, 64, 1, 1), strides=2))

    mod = program(body, (1, 64, 28, 28))
    offers = search.search_of(mod, target(AVX2), {}, Database().read()).offers
    assert any("subsampled" in slower for slower in offers.slower.values())


@pytest.mark.parametrize(
    "name", ["average pool", "norm of rows", "also a result", "a depthwise convolution", "a relu", "a convolution"]
)
def test_a_plan_costs_what_it_would_wherever_the_data_come_from(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes them may be slower in blocks, or others may want them in rows: then less of them is moved."""
    makers: dict[str, Callable[[Any, Any], Any]] = {
        "average pool": lambda _, x: op.nn.avg_pool2d(x, (3, 3), (1, 1), (1, 1)),
        "norm of rows": lambda _, x: op.nn.softmax(x, axis=-1),
        "also a result": lambda _, x: op.nn.relu(x),
        "a depthwise convolution": lambda _, x: op.nn.conv2d(x, constant(64, 1, 3, 3), padding=1, groups=64),
        "a relu": lambda builder, x: op.nn.relu(builder.emit(op.nn.softmax(x, axis=-1))),
        "a convolution": lambda builder, x: op.nn.relu(builder.emit(op.nn.conv2d(x, constant(64, 64, 1, 1)))),
    }

    def body(builder: Any, x: Any) -> Any:
        data = builder.emit(makers[name](builder, x))
        made = builder.emit(op.nn.conv2d(data, constant(128, 64, 1, 1), strides=2))
        if name != "also a result":
            return made
        return builder.emit(op.concat([builder.emit(op.reshape(one, (1, -1))) for one in (data, made)], axis=1))

    mod = program(body, (1, 64, 56, 56))
    plan = eqsat_layout.plan(mod, ICE_LAKE)
    every = search.make_offers
    monkeypatch.setattr(search, "make_offers", lambda *args, prices, **more: every(*args, **more))
    assert plan.cost <= eqsat_layout.plan(mod, ICE_LAKE).cost


def test_what_measuring_may_tell_otherwise_is_offered_to_it() -> None:
    space = PlanSpace(convolution(64, 64, 28, 3), target(AVX2), {})
    offered = {a.name.partition("@")[0] for graphs in space.offers.graphs.values() for a in graphs}
    assert {"im2col", "winograd F(2,3)", "winograd F(4,3)"} <= offered


@pytest.mark.parametrize("option", ["objective", "cost_model"])
def test_who_asks_for_other_costs_gets_all(option: str) -> None:
    """They may find dear what is fast."""
    own = "traffic" if option == "objective" else target(AVX2).roofline()
    plan = eqsat_layout.plan(convolution(64, 64, 28, 3), AVX2, **{option: own})
    assert not {r.layout for r in plan.why_not("conv2d") if r.index_map is None} & {"im2col", "winograd F(2,3)"}
