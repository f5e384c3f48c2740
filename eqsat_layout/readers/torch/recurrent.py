"""LSTM, GRU and RNN of torch as one kernel for all steps of a layer.

In: values of a node's arguments. Out: its results, in Relax. Unrolled, as torch writes them, a sequence of a hundred
steps is a thousand ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from tvm import relax

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.activations import Activation
from eqsat_layout.readers.layers.recurrent_layers import Layer, layer

_ORDER: Final = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
"""Where a kernel's gates are among torch's."""


def _maker(kind: str, activations: Sequence[Activation] = ()) -> Callable[..., Any]:
    def make(
        b: relax.BlockBuilder,
        data: Any,
        first: Any,
        weights: Any,
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        both_ways: bool,
        batch_first: bool,
    ) -> Any:
        if train and dropout:
            raise EqsatError(f"{kind} in training is not done")
        states = list(first) if isinstance(first, list | tuple) else [first]
        x = b.emit(relax.op.permute_dims(data, [1, 0, 2])) if batch_first else data
        sides = 2 if both_ways else 1
        each = len(weights) // (layers * sides)
        if each != (4 if has_biases else 2):
            raise EqsatError(f"{kind} with projections is not done")
        last: list[list[Any]] = [[] for _ in states]
        for number in range(layers):
            made = []
            for side in range(sides):
                at = number * sides + side
                own = weights[at * each : (at + 1) * each]
                begins = [b.emit(relax.op.take(state, relax.const(at, "int64"), 0)) for state in states]
                outputs = layer(b, _layer(b, kind, activations, own, reverse=side == 1), x, begins)
                made.append(outputs[0])
                for found, state in zip(last, outputs[1:], strict=True):
                    found.append(state)
            x = made[0] if sides == 1 else b.emit(relax.op.concat(made, axis=2))
        ends = [b.emit(relax.op.stack(found, axis=0)) for found in last]
        return relax.Tuple([b.emit(relax.op.permute_dims(x, [1, 0, 2])) if batch_first else x, *ends])

    return make


def _layer(
    b: relax.BlockBuilder, kind: str, activations: Sequence[Activation], own: Sequence[Any], *, reverse: bool
) -> Layer:
    inputs, recurrent, *biases = (_in_order(b, kind, one) for one in own)
    if not biases:
        zeros = np.zeros(int(inputs.ty.shape.values[0]), str(inputs.ty.dtype))
        biases = [relax.const(zeros), relax.const(zeros)]
    return Layer(kind, tuple(activations), inputs, recurrent, biases[0], biases[1], reverse)


def _in_order(b: relax.BlockBuilder, kind: str, weight: Any) -> Any:
    order = _ORDER[kind]
    if order == tuple(range(len(order))):
        return weight
    size = int(weight.ty.shape.values[0]) // len(order)
    places = np.concatenate([np.arange(size) + gate * size for gate in order])
    return b.emit(relax.op.take(weight, relax.const(places.astype("int64")), 0))


MAKERS: Final = {
    "lstm.input": _maker("LSTM"),
    "gru.input": _maker("GRU"),
    "rnn_tanh.input": _maker("RNN"),
    "rnn_relu.input": _maker("RNN", [Activation("Relu")]),
}

KEPT: Final = tuple(MAKERS)
"""The ops that torch is not to write in others."""
