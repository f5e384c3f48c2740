"""LSTM, GRU and RNN of ONNX, which TVM's frontend does not take: one product for all inputs, one kernel for all steps.

In: a node's inputs and attributes. Out: its results, in Relax. Steps are a loop of the kernel: long sequences compile
as fast as short ones, and their number may be known at run time only.
"""
# mypy: disable-error-code="valid-type, no-untyped-def, untyped-decorator"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from tvm import ir, relax, tirx
from tvm.script import tirx as T

from eqsat_layout.errors import EqsatError

_GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}
_ACTIVATIONS: Final = {"LSTM": [["Sigmoid", "Tanh", "Tanh"]], "GRU": [["Sigmoid", "Tanh"]], "RNN": [["Tanh"], ["Relu"]]}

KINDS: Final = frozenset(_GATES)
"""Their names."""


def converted(builder: relax.BlockBuilder, kind: str, inputs: Any, attributes: dict[str, Any]) -> relax.Tuple:
    """The results of a node; :class:`EqsatError` for what such nodes may ask for and exporters don't."""
    given = [*inputs, *[None] * 8]
    x, recurrent, firsts = given[0], given[2], given[5:7]
    reversals = _reversals(kind, attributes)
    activations = _activations(kind, attributes, len(reversals))
    steps, batch, _ = x.ty.shape.values
    if given[7] is not None or not _is_whole(given[4], steps):
        raise EqsatError(f"{kind} with {'lengths of its sequences' if given[7] is None else 'peepholes'} is not done")
    hidden, dtype = int(recurrent.ty.shape.values[2]), str(x.ty.dtype)
    gates = _GATES[kind] * hidden
    sides: list[list[Any]] = []
    for side, is_reverse in enumerate(reversals):
        weights, own = (relax.op.permute_dims(_side(builder, one, side), [1, 0]) for one in given[1:3])
        biases = _biases(builder, given[3], side, gates, dtype)
        products = builder.emit(relax.op.add(builder.emit(relax.op.matmul(x, builder.emit(weights))), biases[0]))
        zeros = relax.op.zeros(relax.ShapeExpr([batch, hidden]), dtype)
        states = [
            builder.emit(zeros) if one is None else _side(builder, one, side)
            for one in firsts[: 2 if kind == "LSTM" else 1]
        ]
        kernel = _kernel(kind, activations[side], (steps, batch, hidden), dtype, is_reverse)
        types = [relax.TensorType([steps, batch, hidden], dtype)]
        types += [relax.TensorType([batch, hidden], dtype)] * len(states)
        operands = [products, builder.emit(own), biases[1], *states]
        made = builder.emit(relax.call_tir(builder.add_func(kernel, kind.lower()), operands, types))
        sides.append([builder.emit(relax.TupleGetItem(made, i)) for i in range(len(types))])
    both = enumerate(zip(*sides, strict=True))
    return relax.Tuple([builder.emit(relax.op.stack(list(one), axis=1 if i == 0 else 0)) for i, one in both])


def _reversals(kind: str, attributes: dict[str, Any]) -> list[bool]:
    """Of each direction whether it goes from the last step to the first."""
    for name in ("clip", "layout", "input_forget"):
        if attributes.get(name):
            raise EqsatError(f"{kind} with {name}={attributes[name]} is not done")
    if kind == "GRU" and not attributes.get("linear_before_reset"):
        raise EqsatError("GRU with linear_before_reset=0 is not done")
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
    """Of the inputs, and of the states."""
    if both is None:
        return [relax.const(np.zeros(gates, dtype))] * 2
    own = _side(builder, both, side)
    return [builder.emit(relax.op.strided_slice(own, [0], [at], [at + gates])) for at in (0, gates)]


def _kernel(
    kind: str, activations: list[str], sizes: tuple[Any, Any, int], dtype: str, is_reverse: bool
) -> tirx.PrimFunc:
    """All steps of one direction: given what the inputs make of the gates."""
    steps, batch = (one if isinstance(one, tirx.IntImm) else tirx.Var(str(one), "int64") for one in sizes[:2])
    return _MAKERS[kind](steps, batch, sizes[2], dtype, is_reverse, activations)


def _lstm(steps: Any, batch: Any, hidden: int, dtype: str, is_reverse: bool, _: list[str]) -> tirx.PrimFunc:
    wide, at_once = 4 * hidden, _at_once(hidden)

    @T.prim_func(private=True, s_tir=True)
    def lstm(
        x: T.Buffer((steps, batch, wide), dtype),
        weights: T.Buffer((hidden, wide), dtype),
        bias: T.Buffer((wide,), dtype),
        first: T.Buffer((batch, hidden), dtype),
        first_cell: T.Buffer((batch, hidden), dtype),
        y: T.Buffer((steps, batch, hidden), dtype),
        state: T.Buffer((batch, hidden), dtype),
        cell: T.Buffer((batch, hidden), dtype),
    ):
        gates = T.sblock_alloc_buffer((batch, wide), dtype)
        with T.sblock("steps"):
            T.reads(x[:, :, :], weights[:, :], bias[:], first[:, :], first_cell[:, :])
            T.writes(y[:, :, :], state[:, :], cell[:, :], gates[:, :])
            for b, j in T.grid(batch, hidden):
                state[b, j] = first[b, j]
                cell[b, j] = first_cell[b, j]
            for step in range(steps):
                at = T.meta_var(steps - 1 - step if is_reverse else step)
                for b, j in T.grid(batch, wide):
                    gates[b, j] = x[at, b, j] + bias[j]
                for b, k, j in T.grid(batch, hidden // at_once, wide):
                    gates[b, j] = gates[b, j] + _products(state, weights, b, k * at_once, j, at_once)
                for b, j in T.grid(batch, hidden):
                    cell[b, j] = T.sigmoid(gates[b, hidden * 2 + j]) * cell[b, j] + T.sigmoid(gates[b, j]) * T.tanh(
                        gates[b, hidden * 3 + j]
                    )
                    state[b, j] = T.sigmoid(gates[b, hidden + j]) * T.tanh(cell[b, j])
                    y[at, b, j] = state[b, j]

    return lstm


def _gru(steps: Any, batch: Any, hidden: int, dtype: str, is_reverse: bool, _: list[str]) -> tirx.PrimFunc:
    wide, at_once = 3 * hidden, _at_once(hidden)

    @T.prim_func(private=True, s_tir=True)
    def gru(
        x: T.Buffer((steps, batch, wide), dtype),
        weights: T.Buffer((hidden, wide), dtype),
        bias: T.Buffer((wide,), dtype),
        first: T.Buffer((batch, hidden), dtype),
        y: T.Buffer((steps, batch, hidden), dtype),
        state: T.Buffer((batch, hidden), dtype),
    ):
        gates = T.sblock_alloc_buffer((batch, wide), dtype)
        with T.sblock("steps"):
            T.reads(x[:, :, :], weights[:, :], bias[:], first[:, :])
            T.writes(y[:, :, :], state[:, :], gates[:, :])
            for b, j in T.grid(batch, hidden):
                state[b, j] = first[b, j]
            for step in range(steps):
                at = T.meta_var(steps - 1 - step if is_reverse else step)
                for b, j in T.grid(batch, wide):
                    gates[b, j] = bias[j]
                for b, k, j in T.grid(batch, hidden // at_once, wide):
                    gates[b, j] = gates[b, j] + _products(state, weights, b, k * at_once, j, at_once)
                for b, j in T.grid(batch, hidden):
                    keep = T.meta_var(T.sigmoid(x[at, b, j] + gates[b, j]))
                    reset = T.meta_var(T.sigmoid(x[at, b, hidden + j] + gates[b, hidden + j]))
                    new = T.meta_var(T.tanh(x[at, b, hidden * 2 + j] + reset * gates[b, hidden * 2 + j]))
                    y[at, b, j] = new + keep * (state[b, j] - new)
                for b, j in T.grid(batch, hidden):
                    state[b, j] = y[at, b, j]

    return gru


def _rnn(steps: Any, batch: Any, hidden: int, dtype: str, is_reverse: bool, activations: list[str]) -> tirx.PrimFunc:
    is_relu, at_once = activations == ["Relu"], _at_once(hidden)

    @T.prim_func(private=True, s_tir=True)
    def rnn(
        x: T.Buffer((steps, batch, hidden), dtype),
        weights: T.Buffer((hidden, hidden), dtype),
        bias: T.Buffer((hidden,), dtype),
        first: T.Buffer((batch, hidden), dtype),
        y: T.Buffer((steps, batch, hidden), dtype),
        state: T.Buffer((batch, hidden), dtype),
    ):
        gates = T.sblock_alloc_buffer((batch, hidden), dtype)
        with T.sblock("steps"):
            T.reads(x[:, :, :], weights[:, :], bias[:], first[:, :])
            T.writes(y[:, :, :], state[:, :], gates[:, :])
            for b, j in T.grid(batch, hidden):
                state[b, j] = first[b, j]
            for step in range(steps):
                at = T.meta_var(steps - 1 - step if is_reverse else step)
                for b, j in T.grid(batch, hidden):
                    gates[b, j] = x[at, b, j] + bias[j]
                for b, k, j in T.grid(batch, hidden // at_once, hidden):
                    gates[b, j] = gates[b, j] + _products(state, weights, b, k * at_once, j, at_once)
                for b, j in T.grid(batch, hidden):
                    state[b, j] = T.max(gates[b, j], T.Cast(dtype, 0)) if is_relu else T.tanh(gates[b, j])
                    y[at, b, j] = state[b, j]

    return rnn


def _at_once(hidden: int) -> int:
    """How many products are added before a sum is stored."""
    return next(n for n in (8, 4, 2, 1) if hidden % n == 0)


def _products(state: Any, weights: Any, b: Any, k: Any, j: Any, at_once: int) -> Any:
    products = [state[b, k + i] * weights[k + i, j] for i in range(at_once)]
    return sum(products[1:], products[0])


_MAKERS: Final[dict[str, Callable[..., tirx.PrimFunc]]] = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}
