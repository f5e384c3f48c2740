"""LSTM, GRU and RNN of ONNX, which TVM's frontend does not take.

In: a node's inputs and attributes. Out: its results, in Relax.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from tvm import ir, relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.recurrent_layers import Layer, layer

_GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}
_ACTIVATIONS: Final = {"LSTM": [["Sigmoid", "Tanh", "Tanh"]], "GRU": [["Sigmoid", "Tanh"]], "RNN": [["Tanh"], ["Relu"]]}

KINDS: Final = frozenset(_GATES)
"""Their names."""


def converted(builder: relax.BlockBuilder, kind: str, inputs: Any, attributes: dict[str, Any]) -> relax.Tuple:
    """The results of a node; :class:`EqsatError` for what such nodes may ask for and exporters don't."""
    given = [*inputs, *[None] * 8]
    x, recurrent, firsts = given[0], given[2], given[5:7]
    if batch_first := bool(attributes.get("layout")):
        x, *firsts = (None if one is None else _turned(builder, one) for one in (x, *firsts))
    reversals = _reversals(kind, attributes)
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
            own_kind, tuple(activations[side]), weights, own, input_bias, own_bias, is_reverse, lengths, peepholes
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


def _reversals(kind: str, attributes: dict[str, Any]) -> list[bool]:
    """For each direction, whether it goes from the last step to the first."""
    for name in ("clip", "input_forget"):
        if attributes.get(name):
            raise EqsatError(f"{kind} with {name}={attributes[name]} is not done")
    direction = _text(attributes.get("direction", "forward"))
    return {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]


def _activations(kind: str, attributes: dict[str, Any], directions: int) -> list[list[str]]:
    """Those of each direction."""
    usual = _ACTIVATIONS[kind]
    named = [_text(one).capitalize() for one in attributes.get("activations", ())] or usual[0] * directions
    each = [named[i : i + len(usual[0])] for i in range(0, len(named), len(usual[0]))]
    if len(each) != directions or any(one not in usual for one in each):
        raise EqsatError(f"{kind} with the activations {', '.join(named)} is not done")
    return each


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
