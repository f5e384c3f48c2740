"""One layer of a recurrent network: one product for all inputs, one kernel for all steps.

In: weights in the order of ONNX's gates, data, states. Out: what all steps give and the last states, in Relax. Steps
are a loop of the kernel: long sequences compile as fast as short ones, and their number may be known at run time only.
"""
# mypy: disable-error-code="valid-type, no-untyped-def, untyped-decorator"

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import relax, tirx
from tvm.script import tirx as T


@dataclass(frozen=True)
class Layer:
    """One direction. ``inputs``, ``recurrent``: of shape (gates, numbers); a bias for each. ``reverse``: from the last
    step to the first. The ``kind`` "GRU before" is a GRU that resets its states before they are multiplied.

    ``lengths``: of shape (batch,), how many steps each sequence has; after these its states stay, and what it gives is
    0. ``peepholes`` of an LSTM: of shape (3 * numbers,), what the input, output and forget gate see of the cell.
    """

    kind: str
    activations: tuple[str, ...]
    inputs: Any
    recurrent: Any
    input_bias: Any
    recurrent_bias: Any
    reverse: bool
    lengths: Any = None
    peepholes: Any = None


def layer(builder: relax.BlockBuilder, one: Layer, x: Any, states: Sequence[Any]) -> list[Any]:
    """All steps of ``x``, of shape (steps, batch, numbers), and each state after the last of them."""
    weights, own = (builder.emit(relax.op.permute_dims(w, [1, 0])) for w in (one.inputs, one.recurrent))
    products = builder.emit(relax.op.add(builder.emit(relax.op.matmul(x, weights)), one.input_bias))
    steps, batch, _ = x.ty.shape.values
    hidden, dtype = int(one.recurrent.ty.shape.values[1]), str(x.ty.dtype)
    more = {name: value for name in ("lengths", "peepholes") if (value := getattr(one, name)) is not None}
    kernel = _kernel(one, (steps, batch, hidden), dtype, list(more))
    types = [relax.TensorType([steps, batch, hidden], dtype)]
    types += [relax.TensorType([batch, hidden], dtype)] * len(states)
    if "lengths" in more:
        more["lengths"] = builder.emit(relax.op.astype(one.lengths, "int64"))
    operands = [products, own, one.recurrent_bias, *states, *more.values()]
    made = builder.emit(relax.call_tir(builder.add_func(kernel, one.kind.split()[0].lower()), operands, types))
    return [builder.emit(relax.TupleGetItem(made, i)) for i in range(len(types))]


def _kernel(one: Layer, sizes: tuple[Any, Any, int], dtype: str, more: list[str]) -> tirx.PrimFunc:
    """All steps of one direction: given what the inputs make of the gates."""
    steps, batch = (size if isinstance(size, tirx.IntImm) else tirx.Var(str(size), "int64") for size in sizes[:2])
    made = _MAKERS[one.kind](steps, batch, sizes[2], dtype, one.reverse, list(one.activations), more)
    left_out = [name for name in ("lengths", "peepholes") if name not in more]
    params = [param for param in made.params if param.name not in left_out]  # which nothing reads
    return tirx.PrimFunc(params, made.body, ret_type=made.ret_type, attrs=made.attrs)


def _lstm(
    steps: Any, batch: Any, hidden: int, dtype: str, is_reverse: bool, _: list[str], more: list[str]
) -> tirx.PrimFunc:
    wide, at_once = 4 * hidden, _at_once(hidden)
    is_cut, peeps = "lengths" in more, "peepholes" in more

    @T.prim_func(private=True, s_tir=True)
    def lstm(
        x: T.Buffer((steps, batch, wide), dtype),
        weights: T.Buffer((hidden, wide), dtype),
        bias: T.Buffer((wide,), dtype),
        first: T.Buffer((batch, hidden), dtype),
        first_cell: T.Buffer((batch, hidden), dtype),
        lengths: T.Buffer((batch,), "int64"),
        peepholes: T.Buffer((3 * hidden,), dtype),
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
                    seen_in = T.meta_var(peepholes[j] * cell[b, j] if peeps else 0)
                    seen_out = T.meta_var(peepholes[hidden + j] * cell[b, j] if peeps else 0)
                    seen_forget = T.meta_var(peepholes[hidden * 2 + j] * cell[b, j] if peeps else 0)
                    kept = T.meta_var(T.sigmoid(gates[b, hidden * 2 + j] + seen_forget) * cell[b, j])
                    new = T.meta_var(T.sigmoid(gates[b, j] + seen_in) * T.tanh(gates[b, hidden * 3 + j]))
                    cell[b, j] = _while_it_lasts(is_cut, at, lengths, b, kept + new, cell[b, j])
                    out = T.meta_var(T.sigmoid(gates[b, hidden + j] + seen_out) * T.tanh(cell[b, j]))
                    state[b, j] = _while_it_lasts(is_cut, at, lengths, b, out, state[b, j])
                    y[at, b, j] = _while_it_lasts(is_cut, at, lengths, b, state[b, j], T.Cast(dtype, 0))

    return lstm


def _gru(
    steps: Any, batch: Any, hidden: int, dtype: str, is_reverse: bool, _: list[str], more: list[str]
) -> tirx.PrimFunc:
    wide, at_once, is_cut = 3 * hidden, _at_once(hidden), "lengths" in more

    @T.prim_func(private=True, s_tir=True)
    def gru(
        x: T.Buffer((steps, batch, wide), dtype),
        weights: T.Buffer((hidden, wide), dtype),
        bias: T.Buffer((wide,), dtype),
        first: T.Buffer((batch, hidden), dtype),
        lengths: T.Buffer((batch,), "int64"),
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
                    given = T.meta_var(new + keep * (state[b, j] - new))
                    y[at, b, j] = _while_it_lasts(is_cut, at, lengths, b, given, T.Cast(dtype, 0))
                for b, j in T.grid(batch, hidden):
                    state[b, j] = _while_it_lasts(is_cut, at, lengths, b, y[at, b, j], state[b, j])

    return gru


def _gru_reset_before(
    steps: Any, batch: Any, hidden: int, dtype: str, is_reverse: bool, _: list[str], more: list[str]
) -> tirx.PrimFunc:
    """What is new is made of the states that the reset leaves, not of a part of their product."""
    wide, at_once, is_cut = 3 * hidden, _at_once(hidden), "lengths" in more

    @T.prim_func(private=True, s_tir=True)
    def gru(
        x: T.Buffer((steps, batch, wide), dtype),
        weights: T.Buffer((hidden, wide), dtype),
        bias: T.Buffer((wide,), dtype),
        first: T.Buffer((batch, hidden), dtype),
        lengths: T.Buffer((batch,), "int64"),
        y: T.Buffer((steps, batch, hidden), dtype),
        state: T.Buffer((batch, hidden), dtype),
    ):
        gates = T.sblock_alloc_buffer((batch, wide), dtype)
        left = T.sblock_alloc_buffer((batch, hidden), dtype)
        with T.sblock("steps"):
            T.reads(x[:, :, :], weights[:, :], bias[:], first[:, :])
            T.writes(y[:, :, :], state[:, :], gates[:, :], left[:, :])
            for b, j in T.grid(batch, hidden):
                state[b, j] = first[b, j]
            for step in range(steps):
                at = T.meta_var(steps - 1 - step if is_reverse else step)
                for b, j in T.grid(batch, wide):
                    gates[b, j] = x[at, b, j] + bias[j]
                for b, k, j in T.grid(batch, hidden // at_once, 2 * hidden):
                    gates[b, j] = gates[b, j] + _products(state, weights, b, k * at_once, j, at_once)
                for b, j in T.grid(batch, hidden):
                    left[b, j] = T.sigmoid(gates[b, hidden + j]) * state[b, j]
                for b, k, j in T.grid(batch, hidden // at_once, hidden):
                    gates[b, hidden * 2 + j] = gates[b, hidden * 2 + j] + _products(
                        left, weights, b, k * at_once, hidden * 2 + j, at_once
                    )
                for b, j in T.grid(batch, hidden):
                    new = T.meta_var(T.tanh(gates[b, hidden * 2 + j]))
                    given = T.meta_var(new + T.sigmoid(gates[b, j]) * (state[b, j] - new))
                    y[at, b, j] = _while_it_lasts(is_cut, at, lengths, b, given, T.Cast(dtype, 0))
                for b, j in T.grid(batch, hidden):
                    state[b, j] = _while_it_lasts(is_cut, at, lengths, b, y[at, b, j], state[b, j])

    return gru


def _rnn(
    steps: Any, batch: Any, hidden: int, dtype: str, is_reverse: bool, activations: list[str], more: list[str]
) -> tirx.PrimFunc:
    is_relu, at_once, is_cut = activations == ["Relu"], _at_once(hidden), "lengths" in more

    @T.prim_func(private=True, s_tir=True)
    def rnn(
        x: T.Buffer((steps, batch, hidden), dtype),
        weights: T.Buffer((hidden, hidden), dtype),
        bias: T.Buffer((hidden,), dtype),
        first: T.Buffer((batch, hidden), dtype),
        lengths: T.Buffer((batch,), "int64"),
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
                    new = T.meta_var(T.max(gates[b, j], T.Cast(dtype, 0)) if is_relu else T.tanh(gates[b, j]))
                    state[b, j] = _while_it_lasts(is_cut, at, lengths, b, new, state[b, j])
                    y[at, b, j] = _while_it_lasts(is_cut, at, lengths, b, state[b, j], T.Cast(dtype, 0))

    return rnn


def _while_it_lasts(is_cut: bool, at: Any, lengths: Any, b: Any, value: Any, other: Any) -> Any:
    """``value`` at the steps that a sequence has."""
    return T.Select(at < lengths[b], value, other) if is_cut else value


def _at_once(hidden: int) -> int:
    """How many products are added before a sum is stored."""
    return next(n for n in (8, 4, 2, 1) if hidden % n == 0)


def _products(state: Any, weights: Any, b: Any, k: Any, j: Any, at_once: int) -> Any:
    products = [state[b, k + i] * weights[k + i, j] for i in range(at_once)]
    return sum(products[1:], products[0])


_MAKERS: Final[dict[str, Callable[..., tirx.PrimFunc]]] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "GRU before": _gru_reset_before,
    "RNN": _rnn,
}
