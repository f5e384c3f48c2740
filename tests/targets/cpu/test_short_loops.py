"""Short rows of bfloat16 end where they end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

from eqsat_layout import compile as compiled
from eqsat_layout.soundness.memory.kernels import memory_fault
from eqsat_layout.targets.registry import target


def rounded_maxima(rows: Any, columns: int) -> Any:
    """Powers of the first ``columns`` maxima over k of x (rows, 64, 16), less a row, as bfloat16."""
    x = te.placeholder((rows, 64, 16), "float32", name="x")
    row = te.placeholder((columns,), "float32", name="row")
    k = te.reduce_axis((0, 64), name="k")
    largest = te.compute((rows, 16), lambda i, j: te.max(x[i, k, j], axis=k))
    grown = te.compute((rows, columns), lambda i, j: te.exp(te.min(largest[i, j] - row[j], 4.0)))
    out = te.compute((rows, columns), lambda i, j: te.max(te.min(grown[i, j], 1e4), -1e4).astype("bfloat16"))
    func = te.create_prim_func([x, row, out], index_dtype_override="int64").without_attr("global_symbol")
    builder = relax.BlockBuilder()
    *params, result = (relax.TensorType(list(p.ty.shape), str(p.ty.dtype)) for p in func.params)
    x, row = (relax.Var(name, of_type) for name, of_type in zip(("x", "row"), params, strict=True))
    kernel = builder.add_func(func, "maxima")
    with builder.function("main", [x, row]):
        with builder.dataflow():
            made = builder.emit_output(relax.call_tir(kernel, (x, row), result))
        builder.emit_func_output(made)
    return builder.finalize()


@pytest.mark.parametrize("columns", [3, 5, 9])
def test_the_last_bfloat16_of_a_short_row_is_stored_as_two_bytes(columns: int) -> None:
    """LLVM 22 stored four where the last one is alone in its vector: two bytes behind the result were overwritten."""
    executable = compiled(rounded_maxima(tirx.Var("n", "int64"), columns), target("llvm").at_any_address)
    x = np.random.default_rng(0).standard_normal((37, 64, 16)).astype("float32")
    row = np.zeros(columns, "float32")
    assert memory_fault(executable, [("main", [tvm.runtime.tensor(x), tvm.runtime.tensor(row)])]) == ""


def test_kernels_are_for_any_address_with_exact_arithmetic_too() -> None:
    """The fuzzer that calls kernels between protected pages took aligned accesses for ones outside of an operand."""
    given = target("llvm").at_any_address
    assert type(target(given, approx=False)) is type(given)
    assert not target(given, approx=False).approx
