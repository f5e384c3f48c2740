"""One layer of a recurrent network: one product for all inputs, one kernel for all steps.

In: weights in the order of ONNX's gates, data, states. Out: what all steps give and the last states, in Relax.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import relax, te, tirx

from eqsat_layout.readers.layers.activations import Activation
from eqsat_layout.readers.layers.repeated_steps import Step, loop_over_steps


@dataclass(frozen=True)
class Layer:
    """One direction. ``inputs``, ``recurrent``: of shape (gates, numbers); a bias for each. ``reverse``: from the last
    step to the first. The ``kind`` "GRU before" is a GRU that resets its states before they are multiplied.
    ``activations``: in the order of ONNX; nothing for the usual ones. ``is_coupled``: what an LSTM does not forget is
    what it takes in.

    ``lengths``: of shape (batch,), how many steps each sequence has; after these its states stay, and what it gives is
    0. ``peepholes`` of an LSTM: of shape (3 * numbers,), what the input, output and forget gate see of the cell.
    """

    kind: str
    activations: tuple[Activation, ...]
    inputs: Any
    recurrent: Any
    input_bias: Any
    recurrent_bias: Any
    reverse: bool
    lengths: Any = None
    peepholes: Any = None
    is_coupled: bool = False


def layer(builder: relax.BlockBuilder, one: Layer, x: Any, states: Sequence[Any]) -> list[Any]:
    """All steps of ``x``, of shape (steps, batch, numbers), and each state after the last of them."""
    weights, own = (builder.emit(relax.op.permute_dims(w, [1, 0])) for w in (one.inputs, one.recurrent))
    products = builder.emit(relax.op.add(builder.emit(relax.op.matmul(x, weights)), one.input_bias))
    steps, batch, _ = x.ty.shape.values
    hidden, dtype = int(one.recurrent.ty.shape.values[1]), str(x.ty.dtype)
    others = [own, one.recurrent_bias]
    if one.lengths is not None:
        others.append(builder.emit(relax.op.astype(one.lengths, "int64")))
    if one.peepholes is not None:
        others.append(one.peepholes)
    kernel = loop_over_steps(_step(one, _size(batch), hidden, dtype), _size(steps), is_reverse=one.reverse)
    types = [relax.TensorType([steps, batch, hidden], dtype)]
    types += [relax.TensorType([batch, hidden], dtype)] * len(states)
    called = builder.add_func(kernel, one.kind.split()[0].lower())
    made = builder.emit(relax.call_tir(called, [products, *others, *states], types))
    return [builder.emit(relax.TupleGetItem(made, i)) for i in range(len(types))]


def _size(size: Any) -> Any:
    """As it is in a kernel: a number, or a variable for what is known at run time."""
    return size if isinstance(size, tirx.IntImm) else tirx.Var(str(size), "int64")


_Activations = Sequence[Activation]


class _Recurrence:
    """One step while it is put together: what it is given, and the tensors that it makes."""

    def __init__(self, one: Layer, batch: Any, hidden: int, dtype: str) -> None:
        wide = _GATES[one.kind] * hidden
        self.hidden, self._batch, self._dtype = hidden, batch, dtype
        self.x = te.placeholder((batch, wide), dtype, "x")
        self.weights = te.placeholder((hidden, wide), dtype, "weights")
        self.bias = te.placeholder((wide,), dtype, "bias")
        self.number = te.placeholder((), "int64", "number")
        self.state = te.placeholder((batch, hidden), dtype, "state")
        self.cell = te.placeholder((batch, hidden), dtype, "cell")
        self.others = [self.weights, self.bias]
        self._lasts: Any = None
        self.peepholes: Any = None
        if one.lengths is not None:
            lengths = te.placeholder((batch,), "int64", "lengths")
            self._lasts = te.compute((batch,), lambda b: self.number[()] < lengths[b], "lasts")
            self.others.append(lengths)
        if one.peepholes is not None:
            self.peepholes = te.placeholder((3 * hidden,), dtype, "peepholes")
            self.others.append(self.peepholes)

    def tensor(self, name: str, value: Callable[[Any, Any], Any], wide: int | None = None) -> Any:
        """A tensor of shape (batch, ``wide``), by default as wide as the states."""
        return te.compute((self._batch, wide or self.hidden), value, name)

    def product(self, states: Any, name: str, first: int, wide: int) -> Any:
        """The product of the states with the weights of ``wide`` gates, from gate ``first`` on."""
        k = te.reduce_axis((0, self.hidden), "k")
        return self.tensor(name, lambda b, j: te.sum(states[b, k] * self.weights[k, first + j], axis=k), wide)

    def given(self, b: Any, j: Any) -> Any:
        """What inputs and bias give for a gate."""
        return self.x[b, j] + self.bias[j]

    def lasting(self, name: str, new: Any, old: Any = None) -> Any:
        """``new`` at the steps that a sequence has; after these ``old``, or zeros."""
        if self._lasts is None:
            return new

        def value(b: Any, j: Any) -> Any:
            return tirx.Select(self._lasts[b], new[b, j], tirx.const(0, self._dtype) if old is None else old[b, j])

        return self.tensor(name, value)

    def step(self, new_state: Any, *more: tuple[Any, Any]) -> Step:
        """That gives, and keeps, the new state; ``more`` states are before and after the step."""
        after = self.lasting("next_state", new_state, self.state)
        made = self.lasting("lasting", new_state)
        y = self.tensor("y", lambda b, j: made[b, j])  # which is no state
        return Step(self.x, self.others, [(self.state, after), *more], y, self.number)


def _lstm(own: _Recurrence, activations: _Activations, *, is_coupled: bool) -> Step:
    hidden, wide = own.hidden, 4 * own.hidden
    of_gates, of_data, of_cell = activations
    products = own.product(own.state, "products", 0, wide)
    gates = own.tensor("gates", lambda b, j: products[b, j] + own.given(b, j), wide)

    def gate(number: int, cell: Any, b: Any, j: Any) -> Any:
        value = gates[b, number * hidden + j]
        return of_gates(value if own.peepholes is None else value + own.peepholes[number * hidden + j] * cell[b, j])

    def cell(b: Any, j: Any) -> Any:
        taken = gate(0, own.cell, b, j)
        kept = tirx.const(1, taken.ty.dtype) - taken if is_coupled else gate(2, own.cell, b, j)
        return kept * own.cell[b, j] + taken * of_data(gates[b, 3 * hidden + j])

    new_cell = own.tensor("new_cell", cell)
    new_state = own.tensor("new_state", lambda b, j: gate(1, new_cell, b, j) * of_cell(new_cell[b, j]))
    return own.step(new_state, (own.cell, own.lasting("next_cell", new_cell, own.cell)))


def _gru(own: _Recurrence, activations: _Activations) -> Step:
    hidden, wide = own.hidden, 3 * own.hidden
    of_gates, of_data = activations
    products = own.product(own.state, "products", 0, wide)
    gates = own.tensor("gates", lambda b, j: products[b, j] + own.bias[j], wide)

    def new(b: Any, j: Any) -> Any:
        reset = of_gates(own.x[b, hidden + j] + gates[b, hidden + j])
        return of_data(own.x[b, 2 * hidden + j] + reset * gates[b, 2 * hidden + j])

    return own.step(_kept(own, own.tensor("new", new), lambda b, j: of_gates(own.x[b, j] + gates[b, j])))


def _gru_reset_before(own: _Recurrence, activations: _Activations) -> Step:
    """What is new is made of the states that the reset leaves, not of a part of their product."""
    hidden = own.hidden
    of_gates, of_data = activations
    products = own.product(own.state, "products", 0, 2 * hidden)
    gates = own.tensor("gates", lambda b, j: products[b, j] + own.given(b, j), 2 * hidden)
    left = own.tensor("left", lambda b, j: of_gates(gates[b, hidden + j]) * own.state[b, j])
    of_left = own.product(left, "of_left", 2 * hidden, hidden)
    new = own.tensor("new", lambda b, j: of_data(of_left[b, j] + own.given(b, 2 * hidden + j)))
    return own.step(_kept(own, new, lambda b, j: of_gates(gates[b, j])))


def _kept(own: _Recurrence, new: Any, keep: Callable[[Any, Any], Any]) -> Any:
    """``new``, and of the state what the gate ``keep`` leaves."""
    return own.tensor("new_state", lambda b, j: new[b, j] + keep(b, j) * (own.state[b, j] - new[b, j]))


def _rnn(own: _Recurrence, activations: _Activations) -> Step:
    products = own.product(own.state, "products", 0, own.hidden)
    (of_data,) = activations
    return own.step(own.tensor("new_state", lambda b, j: of_data(products[b, j] + own.given(b, j))))


def _step(one: Layer, batch: Any, hidden: int, dtype: str) -> Step:
    recurrence = _Recurrence(one, batch, hidden, dtype)
    activations = one.activations or tuple(map(Activation, USUAL[one.kind.split()[0]]))
    if one.kind == "LSTM":
        return _lstm(recurrence, activations, is_coupled=one.is_coupled)
    return _MAKERS[one.kind](recurrence, activations)


_GATES: Final = {"LSTM": 4, "GRU": 3, "GRU before": 3, "RNN": 1}

USUAL: Final = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
"""The activations of a kind: of gates, of what is new, of the cell; of an RNN the only one."""

_MAKERS: Final[dict[str, Callable[[_Recurrence, _Activations], Step]]] = {
    "GRU": _gru,
    "GRU before": _gru_reset_before,
    "RNN": _rnn,
}
