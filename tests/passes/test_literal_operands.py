"""Signed zeros are stock TVM's with ``approx=False``, bit for bit, also where ops leave a number out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
import tvm
from programs import constant, program
from tvm import relax
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.passes.literal_operands import with_literals_left_out
from eqsat_layout.tir.structural import nodes_of
from eqsat_layout.validation.results import run_in_machine

Op = Callable[[Any, Any], Any]
SHAPE: Final = (5, 4)
SPECIAL: Final = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 0.5], "float32")


def number(value: float) -> Any:
    return relax.const(np.float32(value))


def unit(b: Any, x: Any) -> Any:
    return b.emit(R.expand_dims(x, -1))


LITERALS: Final[dict[str, Op]] = {
    "x + 0": lambda b, x: R.add(x, number(0.0)),
    "x + -0": lambda b, x: R.add(x, number(-0.0)),
    "-0 + x": lambda b, x: R.add(number(-0.0), x),
    "x - 0": lambda b, x: R.subtract(x, number(0.0)),
    "x - -0": lambda b, x: R.subtract(x, number(-0.0)),
    "x * 1": lambda b, x: R.multiply(x, number(1.0)),
    "x * 0": lambda b, x: R.multiply(x, number(0.0)),
    "x * -0": lambda b, x: R.multiply(x, number(-0.0)),
    "x / 1": lambda b, x: R.divide(x, number(1.0)),
    "0 / x": lambda b, x: R.divide(number(0.0), x),
}
OTHERS: Final[dict[str, Op]] = {
    "0 - x": lambda b, x: R.subtract(number(0.0), x),
    "-0 - x": lambda b, x: R.subtract(number(-0.0), x),
    "-x": lambda b, x: R.negative(x),
    "-(0 - x)": lambda b, x: R.negative(b.emit(R.subtract(number(0.0), x))),
    "-(x + 0)": lambda b, x: R.negative(b.emit(R.add(x, number(0.0)))),
    "x * -1": lambda b, x: R.multiply(x, number(-1.0)),
    "x / -1": lambda b, x: R.divide(x, number(-1.0)),
    "x - x": lambda b, x: R.subtract(x, x),
    "max(x, 0)": lambda b, x: R.maximum(x, number(0.0)),
    "max(0, x)": lambda b, x: R.maximum(number(0.0), x),
    "min(x, -0)": lambda b, x: R.minimum(x, number(-0.0)),
    "relu": lambda b, x: R.nn.relu(x),
    "clip": lambda b, x: R.clip(x, -0.0, 6),
    "sum of one": lambda b, x: R.sum(unit(b, x), axis=[-1]),
    "product of one": lambda b, x: R.prod(unit(b, x), axis=[-1]),
    "max of one": lambda b, x: R.max(unit(b, x), axis=[-1]),
    "sum": lambda b, x: R.sum(x, axis=[0]),
    "pad with -0": lambda b, x: R.nn.pad(x, (1, 1, 2, 2), "constant", -0.0),
    "pad with 0": lambda b, x: R.nn.pad(x, (1, 1, 2, 2), "constant", 0.0),
    "concat with 0": lambda b, x: R.negative(b.emit(R.concat([x, R.zeros((2, 4), "float32")], axis=0))),
    "0 or -0": lambda b, x: R.where(b.emit(R.greater(x, number(-1.0))), number(0.0), number(-0.0)),
    "x or -0": lambda b, x: R.where(b.emit(R.equal(x, number(0.0))), number(-0.0), x),
    "lower triangle": lambda b, x: R.negative(b.emit(R.tril(x, 0))),
    "x + zeros": lambda b, x: R.add(x, R.zeros(SHAPE, "float32")),
    "product with 1": lambda b, x: R.matmul(x, relax.const(np.eye(4, dtype="float32"))),
}


def scaled(b: Any, x: Any) -> Any:
    """What is added to is padded, too: then the plan is another program than what was given."""
    scale, shift = np.array([1, -1, 0, 2], "float32"), np.array([0, -0.0, 0, -0.0], "float32")
    return b.emit(R.add(b.emit(R.multiply(x, relax.const(scale))), relax.const(shift)))


def bits(array: Any) -> Any:
    return np.where(np.isnan(array), np.float32(np.nan), array).view("uint32")


def differences(ops: dict[str, Op], before: Op) -> list[str]:
    """The results that are not as one of stock TVM's builds has them."""

    def body(b: Any, x: Any) -> Any:
        x = before(b, x)
        return relax.Tuple([b.emit(op(b, x)) for op in ops.values()])

    mod, x = program(body, SHAPE), tvm.runtime.tensor(np.resize(SPECIAL, SHAPE))
    built = [tvm.compile(mod, tvm.target.Target({"kind": "llvm", "opt-level": level})) for level in (0, 3)]
    built.append(eqsat_layout.compile(mod, approx=False))
    *stock, own = [run_in_machine(relax.VirtualMachine(one, tvm.cpu()), "main", [x]) for one in built]
    same = [
        np.logical_or.reduce([bits(one) == bits(found) for one in expected]).all()
        for found, *expected in zip(own, *stock, strict=True)
    ]
    return [name for name, is_same in zip(ops, same, strict=True) if not is_same]


@pytest.mark.parametrize("before", [lambda b, x: x, scaled], ids=["given", "computed"])
def test_signs_of_zeros_are_those_of_stock_tvm(before: Op) -> None:
    """``x + 0.0`` of -0.0 is -0.0 there, and ``x - -0.0`` too; they were 0.0 in programs of which anything changed."""
    assert differences(LITERALS | OTHERS, before) == []


@pytest.mark.parametrize("name", LITERALS)
def test_in_a_program_of_which_something_changes(name: str) -> None:
    own = {name: LITERALS[name], "pad with -0": OTHERS["pad with -0"]}
    assert differences(own, scaled) == []


def test_only_what_tvm_leaves_out_is_left_out() -> None:
    left_out = with_literals_left_out(program(lambda b, x: LITERALS["x + 0"](b, x), SHAPE))
    assert [str(call.op.name) for call in nodes_of(left_out["main"], tvm.ir.Call)] == ["relax.call_tir"]
    for name in ("0 - x", "max(x, 0)", "x * -1", "x + zeros"):
        mod = program(lambda b, x, name=name: OTHERS[name](b, x), SHAPE)
        tvm.ir.assert_structural_equal(with_literals_left_out(mod), mod)


def test_zeros_of_any_layout_are_zeros() -> None:
    """``x * 0.0`` of infinity is 0 in TVM's code, and was NaN in a program of which layouts changed."""

    def body(b: Any, x: Any) -> Any:
        y = b.emit(R.nn.conv2d(x, constant(16, 16, 1, 1)))
        y = b.emit(R.nn.relu(b.emit(R.multiply(y, number(0.0)))))
        return R.nn.conv2d(y, constant(16, 16, 1, 1, seed=1))

    mod = program(body, (1, 16, 8, 8), frozen={"relax.nn.conv2d": ["NCHW16c", "OIHW16i16o"]})
    machine = relax.VirtualMachine(eqsat_layout.compile(mod, approx=False), tvm.cpu())
    (found,) = run_in_machine(machine, "main", [tvm.runtime.tensor(np.full((1, 16, 8, 8), np.inf, "float32"))])
    assert (found == 0).all()
