"""Joins of many tensors in steps, which stay steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx

import eqsat_layout
from eqsat_layout.graph.legalize import legalize
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fuse import fuse
from eqsat_layout.passes.many_operands import MOST_JOINED, STEP, join_in_steps
from eqsat_layout.tir.structural import nodes_of


def _joined(count: int, join: Any, shape: tuple[int, ...] = (2, 3)) -> tvm.IRModule:
    """A relu of ``count`` joined operands."""
    builder = relax.BlockBuilder()
    operands = [relax.Var(f"x{n}", relax.TensorType(shape, "float32")) for n in range(count)]
    with builder.function("main", operands):
        with builder.dataflow():
            result = builder.emit_output(relax.op.nn.relu(builder.emit(join(operands))))
        builder.emit_func_output(result)
    return builder.get()


def _widths(mod: tvm.IRModule) -> list[int]:
    """Operands of joins."""
    calls = nodes_of(mod["main"], tvm.ir.Call)
    return [len(call.args[0].fields) for call in calls if isinstance(call.args[0], relax.Tuple)]


def test_a_concat_of_400_operands_is_no_kernel_of_400_operands() -> None:
    """It was: conditions in each other, over which TVM's passes and LLVM took minutes."""
    mod = join_in_steps(_joined(400, lambda operands: relax.op.concat(operands, 1)))
    assert sorted(_widths(mod)) == [13, 16, *[STEP] * 12]
    kernels = [func for _, func in fuse(legalize(mod), Notes()).functions_items() if isinstance(func, tirx.PrimFunc)]
    widths = {len(kernel.params) for kernel in kernels}
    assert STEP + 1 in widths
    assert max(widths) <= MOST_JOINED + 1


def test_steps_of_steps() -> None:
    mod = join_in_steps(_joined(2100, lambda operands: relax.op.concat(operands, 0)))
    assert max(_widths(mod)) <= MOST_JOINED
    assert len(_widths(mod)) == 66 + 3 + 1


def test_as_many_as_networks_join_at_once_stay_one_kernel() -> None:
    mod = _joined(MOST_JOINED, lambda operands: relax.op.concat(operands, 1))
    assert join_in_steps(mod) is mod
    kernels = [func for _, func in fuse(legalize(mod), Notes()).functions_items() if isinstance(func, tirx.PrimFunc)]
    assert [len(kernel.params) for kernel in kernels] == [MOST_JOINED + 1]


@pytest.mark.parametrize(
    ("join", "joined"),
    [
        (lambda operands: relax.op.concat(operands, -1), lambda arrays: np.concatenate(arrays, -1)),
        (lambda operands: relax.op.stack(operands, 1), lambda arrays: np.stack(arrays, 1)),
        (lambda operands: relax.op.stack(operands, -1), lambda arrays: np.stack(arrays, -1)),
    ],
    ids=["concat", "stack", "stack along the last axis"],
)
def test_what_is_joined_in_steps_is_the_same(join: Any, joined: Any) -> None:
    given = np.full((2, 3), np.nan, "float32")
    arrays = [np.random.default_rng(n).standard_normal((2, 3)).astype("float32") for n in range(2 * STEP + 1)]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(join([x, *map(relax.const, arrays)]))
        builder.emit_func_output(result)
    mod = builder.get()
    changed = join_in_steps(mod)
    assert not tvm_ffi.structural_equal(changed, mod)
    assert tvm_ffi.structural_equal(changed["main"].ret_ty, mod["main"].ret_ty)
    machine = relax.VirtualMachine(eqsat_layout.compile(mod), tvm.cpu())
    np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(given)).numpy(), joined([given, *arrays]))
