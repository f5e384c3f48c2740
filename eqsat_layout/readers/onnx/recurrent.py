"""LSTM, GRU and RNN of ONNX, which TVM's frontend does not take.

In: a node's inputs and attributes. Out: its results, in Relax.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from tvm import ir, relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.activations import ACTIVATIONS, Activation
from eqsat_layout.readers.layers.recurrent_layers import USUAL, Layer, layer

_GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}

_OF_CELL: Final = 2
"""The activation whose input ONNX Runtime does not clip, although ONNX speaks of all."""

KINDS: Final = frozenset(_GATES)
"""Their names."""


def converted(builder: relax.BlockBuilder, kind: str, inputs: Any, attributes: dict[str, Any]) -> relax.Tuple:
    """The results of a node; :class:`EqsatError` for what such nodes may ask for and exporters don't."""
    given = [*inputs, *[None] * 8]
    x, recurrent, firsts = given[0], given[2], given[5:7]
    if batch_first := bool(attributes.get("layout")):
        x, *firsts = (None if one is None else _turned(builder, one) for one in (x, *firsts))
    direction = _text(attributes.get("direction", "forward"))
    reversals = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    activations = _activations(kind, attributes, len(reversals))
    steps, batch, wide = x.ty.shape.values
    lengths = None if _is_whole(given[4], steps) else given[4]
    hidden, dtype = int(recurrent.ty.shape.values[2]), str(x.ty.dtype)
    gates, count = _GATES[kind] * hidden, len(reversals)
    _check(kind, "weights", given[1], (count, gates, wide))
    _check(kind, "recurrent weights", recurrent, (count, gates, hidden))
    _check(kind, "biases", given[3], (count, 2 * gates))
    _check(kind, "peepholes", given[7], (count, 3 * hidden))
    for name, first in zip(("first states", "first cells"), firsts, strict=True):
        _check(kind, name, first, (count, batch, hidden))
    sides: list[list[Any]] = []
    for side, is_reverse in enumerate(reversals):
        weights, own = (_side(builder, one, side) for one in given[1:3])
        input_bias, own_bias = _biases(builder, given[3], side, gates, dtype)
        zeros = relax.op.zeros(relax.ShapeExpr([batch, hidden]), dtype)
        states = [
            builder.emit(zeros) if one is None else _side(builder, one, side)
            for one in firsts[: 2 if kind == "LSTM" else 1]
        ]
        own_kind = "GRU before" if kind == "GRU" and not attributes.get("linear_before_reset") else kind
        peepholes = None if given[7] is None else _side(builder, given[7], side)
        made = Layer(
            own_kind,
            activations[side],
            weights,
            own,
            input_bias,
            own_bias,
            is_reverse,
            lengths,
            peepholes,
            bool(attributes.get("input_forget")),
        )
        sides.append(layer(builder, made, x, states))
    both = enumerate(zip(*sides, strict=True))
    whole = [builder.emit(relax.op.stack(list(one), axis=1 if i == 0 else 0)) for i, one in both]
    if batch_first:
        whole = [
            builder.emit(relax.op.permute_dims(whole[0], [2, 0, 1, 3])),
            *(_turned(builder, one) for one in whole[1:]),
        ]
    return relax.Tuple(whole)


def _check(kind: str, name: str, given: Any, extents: Sequence[Any]) -> None:
    """:class:`EqsatError` for an operand of other extents, as far as they are numbers: ONNX does not look at them."""
    own = () if given is None else tuple(given.ty.shape.values)
    both = [*zip(own, extents, strict=False)]
    known = [(int(a), int(b)) for a, b in both if all(isinstance(one, int | tirx.IntImm) for one in (a, b))]
    if given is not None and (len(own) != len(extents) or any(a != b for a, b in known)):
        shapes = [f"[{', '.join(map(str, shape))}]" for shape in (extents, own)]
        raise EqsatError(f"the {name} of the {kind} are {shapes[1]}, not {shapes[0]}")


def _turned(builder: relax.BlockBuilder, value: Any) -> Any:
    """The first two axes exchanged: the batch first, or the steps first."""
    return builder.emit(relax.op.permute_dims(value, [1, 0, 2]))


def _activations(kind: str, attributes: dict[str, Any], directions: int) -> list[tuple[Activation, ...]]:
    """Those of each direction."""
    names = [_text(one) for one in attributes.get("activations", ())] or [*USUAL[kind]] * directions
    known = {name.lower(): name for name in ACTIVATIONS}
    if len(names) != len(USUAL[kind]) * directions or any(name.lower() not in known for name in names):
        raise EqsatError(f"{kind} with the activations {', '.join(names)} is not done")
    alphas, betas = (iter(attributes.get(f"activation_{name}", ())) for name in ("alpha", "beta"))
    clip = float(attributes.get("clip", math.inf))
    made, each = [], len(USUAL[kind])
    for at, name in enumerate(known[name.lower()] for name in names):
        takes = len(ACTIVATIONS[name]) - 1
        alpha = next(alphas, None) if takes > 0 else None  # numbers are for those that take any, in their order
        beta = next(betas, None) if takes > 1 else None
        made.append(Activation(name, alpha, beta, math.inf if at % each == _OF_CELL else clip))
    return [tuple(made[at : at + each]) for at in range(0, len(made), each)]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _is_whole(lengths: Any, steps: Any) -> bool:
    """Whether every sequence has all steps."""
    if lengths is None:
        return True
    known = isinstance(lengths, ir.GenericConst) and isinstance(steps, tirx.IntImm)
    return known and bool((lengths.value.numpy() == int(steps)).all())


def _side(builder: relax.BlockBuilder, both: Any, side: int) -> Any:
    """What one direction has of a tensor of all."""
    return builder.emit(relax.op.take(both, relax.const(side, "int64"), axis=0))


def _biases(builder: relax.BlockBuilder, both: Any, side: int, gates: int, dtype: str) -> list[Any]:
    """The biases of the inputs and of the states."""
    if both is None:
        return [relax.const(np.zeros(gates, dtype))] * 2
    own = _side(builder, both, side)
    return [builder.emit(relax.op.strided_slice(own, [0], [at], [at + gates])) for at in (0, gates)]
