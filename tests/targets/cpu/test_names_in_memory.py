"""Names of values that stand for many terms, in kernels for CPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax import op

import eqsat_layout
from eqsat_layout.targets.cpu.names_in_memory import names_in_memory
from eqsat_layout.tir.structural import nodes_of


def test_quotients_of_quotients_are_built() -> None:
    """Two rounds of these were not built in 50 s: what the names in a division stand for grew with each."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((3, 50), "int32"))

    def number(value: int) -> Any:
        return relax.const(value, "int32")

    values = given = np.arange(150, dtype="int32").reshape(3, 50) - 75
    with builder.function("main", [x]):
        with builder.dataflow():
            made = x
            for n in (1, 2):
                divisor = builder.emit(op.add(builder.emit(op.multiply(made, number(2))), number(1)))
                quotient = builder.emit(op.abs(builder.emit(op.floor_divide(made, divisor))))
                made = builder.emit(op.floor_divide(quotient, builder.emit(op.add(made, number(n)))))
                below = values + n
                values = np.where(below == 0, 0, np.abs(values // (values * 2 + 1)) // np.where(below == 0, 1, below))
            output = builder.emit_output(made)
        builder.emit_func_output(output)
    machine = relax.VirtualMachine(eqsat_layout.compile(builder.get()), tvm.cpu())
    np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(given)).numpy(), values)


def test_names_in_choices_and_vectors_are_kept_in_memory() -> None:
    x, y = (tirx.decl_buffer((16,), "int32", name) for name in "xy")
    lanes = tirx.Ramp(tirx.IntImm("int32", 0), tirx.IntImm("int32", 1), 8)

    def squares(value: Any, count: int) -> Any:
        for _ in range(count):
            name = tirx.Var("name", value.ty)
            value = tirx.Let(name, value, name * name + name)
        return value

    value = squares(tirx.BufferLoad(x, [lanes]), 12)
    only = tirx.if_then_else(x[9] > 0, squares(x[8], 12), x[8] - tirx.Select(x[9] > 1, squares(x[9], 12), x[9]))
    stores = [tirx.BufferStore(y, value, [lanes]), tirx.BufferStore(y, only, [8])]
    func = tirx.PrimFunc([x, y], tirx.SeqStmt(stores)).with_attr("global_symbol", "main")
    made = names_in_memory()(tvm.IRModule({"main": func}))
    assert not nodes_of(made["main"].body, tirx.Let)
    assert len(nodes_of(made["main"].body, tirx.AllocBuffer)) == 3 * 12 + 1
    given, found = np.arange(16, dtype="int32"), tvm.runtime.tensor(np.zeros(16, "int32"))
    tvm.compile(made, "llvm")(tvm.runtime.tensor(given), found)
    expected = given.copy()
    for _ in range(12):
        expected = expected * expected + expected
    np.testing.assert_array_equal(found.numpy()[:9], expected[:9])


def test_names_stay_behind_conditions_of_truth_values() -> None:
    """What only one side of a choice between truth values divides was divided whatever the condition said."""
    x, y = (tirx.decl_buffer((2,), "int32", name) for name in "xy")
    value: Any = tirx.truncdiv(x[0], x[1])
    for _ in range(15):
        name = tirx.Var("name", value.ty)
        value = tirx.Let(name, value, name * name + name)
    chosen = tirx.if_then_else(x[1] != 0, value > 3, tirx.const(value=False, dtype="bool"))
    func = tirx.PrimFunc([x, y], tirx.BufferStore(y, tirx.Cast("int32", chosen), [0])).with_attr(
        "global_symbol", "main"
    )
    made = names_in_memory()(tvm.IRModule({"main": func}))
    assert not nodes_of(made["main"].body, tirx.AllocBuffer)
    assert len(nodes_of(made["main"].body, tirx.Let)) == 15
