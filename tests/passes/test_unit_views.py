"""Kernels read small tensors through axes of one element; what reads a view otherwise, or is large, keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from compare import assert_same_results
from tvm import relax
from tvm.relax import op

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.passes.unit_views import read_through_views


def module_of(body: Callable[[Callable[[Any], Any], Any], Any], shape: tuple[int, ...]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(body(builder.emit, x))
        builder.emit_func_output(y)
    return legalize(builder.get())


def called(mod: tvm.IRModule) -> list[str]:
    bindings = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    return [value.args[0].name_hint for value in bindings if isinstance(value, relax.Call)]


def step(emit: Any, x: Any) -> Any:
    """A step of a recurrent network."""
    y = emit(op.reshape(emit(op.exp(x)), (1, 12)))
    return emit(op.matmul(y, relax.const(np.ones((12, 3), "float32"))))


def chain(emit: Any, x: Any) -> Any:
    y = emit(op.reshape(emit(op.exp(x)), (12,)))
    return emit(op.add(emit(op.reshape(y, (12, 1))), emit(op.reshape(y, (1, 1, 12)))))


def number(emit: Any, x: Any) -> Any:
    total = emit(op.sum(emit(op.exp(x)), keepdims=True))
    return emit(op.multiply(x, emit(op.reshape(total, (1,)))))


@pytest.mark.parametrize(("body", "kernels"), [(step, 2), (chain, 2), (number, 3)])
def test_views_of_axes_of_one_element_are_no_calls(body: Any, kernels: int) -> None:
    mod = module_of(body, (1, 1, 12))
    read = read_through_views(mod)
    assert len(called(read)) == kernels < len(called(mod))
    assert not any("reshape" in name for name in called(read))
    assert_same_results(mod, read)


def given_away(emit: Any, x: Any) -> Any:
    return emit(op.reshape(emit(op.exp(x)), (12,)))


def cut(emit: Any, x: Any) -> Any:
    return emit(op.exp(emit(op.reshape(emit(op.exp(x)), (3, 4)))))


@pytest.mark.parametrize(("body", "shape"), [(given_away, (1, 12)), (cut, (1, 12)), (step, (1, 1, 12))])
def test_other_reshapes_stay(body: Any, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given away, what is cut, and what takes much longer than a call."""
    if body is step:
        monkeypatch.setattr("eqsat_layout.passes.unit_views._SMALL", 11)
    mod = module_of(body, shape)
    assert read_through_views(mod) is mod
