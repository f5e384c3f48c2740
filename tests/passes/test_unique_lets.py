"""Names for values within expressions, as TVM's analyzer takes them."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import tirx

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
