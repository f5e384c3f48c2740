"""Recurrent layers beside their equations in numpy, as ONNX states them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import eqsat_layout
from eqsat_layout.readers.layers.activations import Activation
from eqsat_layout.readers.layers.recurrent_layers import Layer, layer

GATES = {"LSTM": 4, "GRU": 3, "GRU before": 3, "RNN": 1}


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def one_step(kind: str, x: Any, given: dict[str, Any], states: list[Any], activation: str) -> list[Any]:
    """The states after a step: the first one is what it gives."""
    state, weights, bias = states[0], given["recurrent"].T, given["recurrent_bias"]
    count = state.shape[1]
    if kind == "RNN":
        new = x + state @ weights + bias
        return [np.maximum(new, 0) if activation == "Relu" else np.tanh(new)]
    if kind == "LSTM":
        entry, out, forget, cell = np.split(x + state @ weights + bias, 4, axis=1)
        see = np.split(given.get("peepholes", np.zeros(3 * count, "float32")), 3)
        new = sigmoid(forget + see[2] * states[1]) * states[1] + sigmoid(entry + see[0] * states[1]) * np.tanh(cell)
        return [sigmoid(out + see[1] * new) * np.tanh(new), new]
    keep, reset, new = np.split(x, 3, axis=1)
    own = np.split(state @ weights + bias, 3, axis=1)
    keep, reset = sigmoid(keep + own[0]), sigmoid(reset + own[1])
    if kind == "GRU before":
        own[2] = (reset * state) @ weights[:, 2 * count :] + bias[2 * count :]
        reset = np.ones_like(reset)
    new = np.tanh(new + reset * own[2])
    return [(1 - keep) * new + keep * state]


def in_numpy(kind: str, x: Any, given: dict[str, Any], states: list[Any], activation: str, *, reverse: bool) -> Any:
    made = np.zeros((*x.shape[:2], states[0].shape[1]), "float32")
    for step in range(len(x))[:: -1 if reverse else 1]:
        products = x[step] @ given["inputs"].T + given["input_bias"]
        new = one_step(kind, products, given, states, activation)
        lasts = (step < given["lengths"] if "lengths" in given else np.ones(x.shape[1], bool))[:, None]
        made[step] = np.where(lasts, new[0], 0)
        states = [np.where(lasts, after, before) for after, before in zip(new, states, strict=True)]
    return [made, *states]


@pytest.mark.parametrize(
    ("kind", "sizes", "more"),
    [
        ("LSTM", (7, 1, 48), []),
        ("LSTM", (3, 5, 33), ["peepholes", "lengths", "reverse"]),
        ("GRU", (4, 16, 32), ["reverse"]),
        ("GRU", (5, 3, 20), ["lengths"]),
        ("GRU before", (4, 2, 24), ["lengths"]),
        ("RNN", (6, 8, 16), []),
        ("RNN", (2, 3, 7), ["Relu", "reverse"]),
    ],
)
def test_all_steps_are_those_of_the_equations(kind: str, sizes: tuple[int, int, int], more: list[str]) -> None:
    """No steps but their number in one kernel, of which the stages of a step have schedules of their own."""
    (steps, batch, count), wide, rng = sizes, 6, np.random.default_rng(0)
    gates = GATES[kind] * count
    shapes = {"inputs": (gates, wide), "recurrent": (gates, count), "input_bias": (gates,), "recurrent_bias": (gates,)}
    if "peepholes" in more:
        shapes["peepholes"] = (3 * count,)
    given = {name: rng.standard_normal(shape).astype("float32") / 3 for name, shape in shapes.items()}
    if "lengths" in more:
        given["lengths"] = rng.integers(0, steps + 1, batch)
    x = rng.standard_normal((steps, batch, wide)).astype("float32")
    states = [rng.standard_normal((batch, count)).astype("float32") for _ in range(2 if kind == "LSTM" else 1)]
    activation = "Relu" if "Relu" in more else "Tanh"
    session = eqsat_layout.Session(_module(kind, given, x, states, activation, reverse="reverse" in more))
    feed = dict(zip((spec.name for spec in session.inputs), (x, *states), strict=True))
    wanted = in_numpy(kind, x, given, states, activation, reverse="reverse" in more)
    for got, one in zip(session.run(None, feed), wanted, strict=True):
        np.testing.assert_allclose(got, one, rtol=1e-4, atol=1e-5)


def _module(kind: str, given: dict[str, Any], x: Any, states: list[Any], activation: str, *, reverse: bool) -> Any:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{n}", relax.TensorType(one.shape, "float32")) for n, one in enumerate((x, *states))]
    with builder.function("main", params):
        with builder.dataflow():
            held = {name: relax.const(value) for name, value in given.items()}
            one = Layer(kind, (Activation("Relu"),) if activation == "Relu" else (), **held, reverse=reverse)
            made = builder.emit_output(relax.Tuple(layer(builder, one, params[0], params[1:])))
        builder.emit_func_output(made)
    module = builder.finalize()
    assert isinstance(module, tvm.IRModule)
    return module
