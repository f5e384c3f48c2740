"""What is worked out twice is worked out of the same operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from targets.machines import AVX2, built
from tvm import te, tirx

from eqsat_layout.passes.overlapping_stores import apart_from_operands
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.tir.structural import nodes_of


def shares(rows: int, columns: int) -> Any:
    """Sums of what each element of a row of exponentials is of all of them, and of their squares."""
    data = te.placeholder((rows, columns), name="data")
    costly = te.compute((rows, columns), lambda y, x: tirx.Select(x <= y, te.exp(data[y, x]), 0.0), name="costly")
    one, two, three = (te.reduce_axis((0, columns), name=name) for name in ("one", "two", "three"))
    whole = te.compute((rows,), lambda y: te.sum(costly[y, one], one), name="whole")
    share = te.compute((rows, columns), lambda y, x: costly[y, x] / whole[y], name="share")
    first = te.compute((rows, 3), lambda y, k: te.sum(share[y, two] * data[two, k], two), name="first")
    second = te.compute((rows, 3), lambda y, k: te.sum(share[y, three] * data[three, k + 3], three), name="second")
    return te.create_prim_func([data, first, second], index_dtype_override="int64")


@pytest.mark.parametrize("columns", [17, 13])
def test_shares_are_divided_once(columns: int) -> None:
    """The quotients took the memory of their dividends, and what the last two vectors of a row share was divided twice:
    wrong numbers of attention with a causal mask, in one kernel."""
    given = np.random.default_rng(0).standard_normal((columns, columns)).astype("float32")
    kernel = schedule_primfunc(shares(columns, columns), AVX2).with_attr("global_symbol", "kernel")
    found = [tvm.runtime.tensor(np.zeros((columns, 3), "float32")) for _ in range(2)]
    built(tvm.IRModule({"kernel": kernel}))["kernel"](tvm.runtime.tensor(given), *found)
    exps = np.tril(np.exp(given))
    share = exps / exps.sum(1, keepdims=True)
    for number, result in enumerate(found):
        expected = share @ given[:, 3 * number : 3 * number + 3]
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("overlaps", [True, False])
def test_memory_is_shared_where_nothing_overlaps(overlaps: bool) -> None:
    data, result = (tirx.decl_buffer((9,), name=name) for name in ("data", "result"))
    first, second = (tirx.decl_buffer((9,), name=name, scope="global") for name in ("first", "second"))

    def copied(source: Any, target: Any) -> Any:
        t, r = tirx.Var("t", "int32"), tirx.Var("r", "int32")
        place = tirx.min(t * 4, 5) + r if overlaps else t * 4 + r
        store = tirx.BufferStore(target, tirx.BufferLoad(source, [place]) * 2.0, [place])
        inner = tirx.For(r, 0, 4, tirx.ForKind.SERIAL, store)
        return tirx.For(t, 0, 3 if overlaps else 2, tirx.ForKind.SERIAL, inner)

    pairs = ((data, first), (first, second), (second, result))
    body = tirx.SeqStmt([tirx.AllocBuffer(first), tirx.AllocBuffer(second), *(copied(*pair) for pair in pairs)])
    mod = tvm.IRModule({"main": tirx.PrimFunc([data, result], body)})
    done = apart_from_operands(tirx.transform.StorageRewrite())(mod)["main"]
    assert len(nodes_of(done.body, tirx.AllocBuffer)) == (2 if overlaps else 1)
    assert not nodes_of(done.body, tirx.AttrStmt)
