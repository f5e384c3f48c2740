"""Names for values within expressions, as TVM's analyzer takes them."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax import op

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
