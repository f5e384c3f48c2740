"""Names for values within expressions, as TVM's analyzer takes them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import tirx as T

import eqsat_layout
from eqsat_layout.passes.unique_lets import with_unique_lets
from eqsat_layout.tir.structural import nodes_of


def test_no_name_stands_for_what_holds_another() -> None:
    """Indices of max pools were computed by kernels without schedules, and warnings: the code generator of TVM's, told
    twice of the name within, raised "Binding of variable dividend conflicts with previous binding"."""
    x, y = (tirx.decl_buffer((4,), "int64", name) for name in "xy")
    i, a, b, c = tirx.Var("i", "int64"), *(tirx.Var(name, "int64") for name in "abc")
    lazy = tirx.if_then_else(x[i] > 0, tirx.Let(c, x[i] * 2, c + 1), tirx.const(0, "int64"))
    value = tirx.Let(a, tirx.Let(b, x[i] + lazy, b * b) + 1, a * a)
    body = tirx.For(i, 0, 4, tirx.ForKind.SERIAL, tirx.BufferStore(y, value + value, [i]))
    func = tirx.PrimFunc([x, y], body)
    made = with_unique_lets()(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}))
    lets = nodes_of(made["main"].body, tirx.Let)
    assert len({let.var for let in lets}) == len(lets) == 6
    within = [inner.var.name for let in lets for inner in nodes_of(let.value, tirx.Let)]
    assert within == ["c", "c"]  # which is computed only if it is asked for
    given, found = tvm.runtime.tensor(np.arange(4)), tvm.runtime.tensor(np.zeros(4, "int64"))
    tvm.compile(made, "llvm")(given, found)
    sums = [n + (2 * n + 1 if n > 0 else 0) for n in range(4)]
    np.testing.assert_array_equal(found.numpy(), [2 * (n * n + 1) ** 2 for n in sums])


def test_no_name_of_an_integer_stands_in_a_condition() -> None:
    """The absolute value of a quotient was computed without a schedule, and with a warning (here it is an error): TVM's
    lowering, told twice of the divisor, raised "Binding of variable divisor conflicts with previous binding"."""
    builder = relax.BlockBuilder()
    given = relax.Var("x", relax.TensorType((tirx.Var("n", "int64"), 63), "int32"))
    with builder.function("main", [given]):
        with builder.dataflow():
            twice = builder.emit(op.multiply(given, relax.const(2, "int32")))
            divisor = builder.emit(op.add(twice, relax.const(1, "int32")))
            output = builder.emit_output(builder.emit(op.abs(builder.emit(op.floor_divide(given, divisor)))))
        builder.emit_func_output(output)
    machine = relax.VirtualMachine(eqsat_layout.compile(builder.get()), tvm.cpu())
    x = np.arange(63, dtype="int32").reshape(1, 63) - 31
    np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(x)).numpy(), np.abs(x // (x * 2 + 1)))


def test_no_name_of_what_is_taken_for_a_number_stands_in_what_holds_another() -> None:
    """TVM's analyzer is told twice of it; names of other floats stay: one after the other took it for ever."""
    x = tirx.decl_buffer((1,), "float32", "x")
    none, once, twice = (tirx.Var(name, "float32") for name in ("none", "once", "twice"))
    value = tirx.Let(none, x[0] - x[0], none * none)
    value = tirx.Let(twice, tirx.Let(once, value + x[0], once * once), twice * twice)
    func = tirx.PrimFunc([x], tirx.BufferStore(x, value, [0])).with_attr("global_symbol", "main")
    body = with_unique_lets()(tvm.IRModule({"main": func}))["main"].body
    names = {let.var.name: [one.var.name for one in nodes_of(let.value, tirx.Let)] for let in nodes_of(body, tirx.Let)}
    assert names == {"none": [], "once": [], "twice": ["once"]}


@T.prim_func(s_tir=True)
def quotient_with_a_name(x: T.Buffer((4,), "int64"), y: T.Buffer((4,), "int64")):
    for i in range(4):
        with T.sblock("y"):
            at = T.axis.remap("S", [i])
            a: T.let[T.int64] = x[at]
            b: T.let[T.int64] = (a + x[(at + 1) % 4]) // (a * 2 + 1)
            c: T.let[T.int64] = T.if_then_else(b > 0, a // b, b)
            y[at] = b + c % (a + 3)


@T.prim_func(s_tir=True)
def quotient_of_steps(x: T.Buffer((4,), "int64"), y: T.Buffer((4,), "int64")):
    for i in range(4):
        with T.sblock("y"):
            at = T.axis.remap("S", [i])
            y[at] = T.int64(0)
            for step in range((x[at] + x[1]) // (x[2] * 2 + x[3])):
                y[at] = y[at] + step + x[at]


@T.prim_func(s_tir=True)
def quotient_that_decides(x: T.Buffer((4,), "int64"), y: T.Buffer((4,), "int64")):
    for i in range(4):
        with T.sblock("y"):
            at = T.axis.remap("S", [i])
            y[at] = x[at]
            if (x[at] + x[1]) // (x[2] * 2 + x[3]) > x[0] // x[at]:
                y[at] = y[at] * T.int64(7)


@pytest.mark.parametrize(
    ("func", "expected"),
    [
        (quotient_with_a_name, [6, 0, 3, 4]),
        (quotient_of_steps, [11, 19, 2, 3]),
        (quotient_that_decides, [35, 63, 2, 3]),
    ],
)
def test_quotients_in_statements_are_built(func, expected) -> None:
    """Kernels of a user's own that give a quotient a name, or go by one, could not be built ("Binding of variable
    dividend conflicts with previous binding"; found by TVM's tests): its analyzer looks at these twice, too."""
    x, builder = relax.Var("x", relax.TensorType((4,), "int64")), relax.BlockBuilder()
    kernel = builder.add_func(func, "kernel")
    with builder.function("main", [x]):
        with builder.dataflow():
            call = relax.call_tir(kernel, relax.Tuple([x]), relax.TensorType((4,), "int64"))
            result = builder.emit_output(builder.emit(call))
        builder.emit_func_output(result)
    mod = builder.get()
    data = tvm.runtime.tensor(np.array([5, 9, 2, 3]))
    machine = relax.VirtualMachine(eqsat_layout.compile(mod, "llvm"), tvm.cpu())
    np.testing.assert_array_equal(machine["main"](data).numpy(), expected)


def test_remainders_in_narrow_floats_have_a_schedule() -> None:
    """Built without one, with a warning (here it is an error): the remainder's names stood in the value of a float's
    ("Binding of variable dividend conflicts with previous binding"; found by the program fuzzer)."""
    x, y = (relax.Var(name, relax.TensorType((24,), "int64")) for name in "xy")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            rest = builder.emit(op.floor_mod(builder.emit(op.subtract(x, relax.const(16, "int64"))), y))
            result = builder.emit_output(op.astype(builder.emit(op.clip(rest, -3, 3)), "bfloat16"))
        builder.emit_func_output(result)
    notes = list[str]()
    eqsat_layout.compile(builder.get(), "llvm", notes=notes)
    assert not any("schedule" in note for note in notes)
