"""What is computed ahead writes nowhere but into its own buffers."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from programs import program
from tvm import relax, tirx
from tvm.relax import op as R
from tvm.script import ir as I
from tvm.script import tirx as T
from tvm_ffi import structural_equal

import eqsat_layout
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fold_constants import fold_constants
from eqsat_layout.passes.guarded_writes import guard_writes
from eqsat_layout.soundness.memory.kernels import memory_fault
from eqsat_layout.targets.cpu.target import make_target


@I.ir_module
class Scatter:
    @T.prim_func(s_tir=True)
    def main(at: T.Buffer((6, 2), "int64"), y: T.Buffer((3, 4), "float32")):
        for i in range(6):
            with T.sblock("scatter"):
                v = T.axis.spatial(6, i)
                y[at[v, 0], at[v, 1]] = T.float32(1)


@I.ir_module
class Flat:
    @T.prim_func(s_tir=True)
    def main(at: T.Buffer((6,), "int64"), y: T.Buffer((3, 2, 4), "float32")):
        for i in range(6):
            with T.sblock("scatter"):
                v = T.axis.spatial(6, i)
                y[at[v] // 8, at[v] // 4 % 2, at[v] % 4] = T.float32(1)


@I.ir_module
class Vast:
    @T.prim_func(s_tir=True)
    def main(at: T.Buffer((6,), "int32"), y: T.Buffer((65536, 32768), "int8")):
        for i in range(6):
            with T.sblock("scatter"):
                v = T.axis.spatial(6, i)
                y[at[v] // 32768, at[v] % 32768] = T.int8(1)


@I.ir_module
class Plain:
    @T.prim_func(s_tir=True)
    def main(y: T.Buffer((3,), "float32")):
        for i in range(3):
            with T.sblock("plain"):
                v = T.axis.spatial(3, i)
                y[v] = T.float32(1)


def test_writes_out_of_range_do_not_happen() -> None:
    kernel = tvm.compile(guard_writes(Scatter), "llvm")
    at = np.array([[0, 0], [1, 4], [2, -1], [-1, 3], [3, 0], [2, 3]], "int64")
    y = tvm.runtime.tensor(np.zeros((3, 4), "float32"))
    kernel["main"](tvm.runtime.tensor(at), y)
    expected = np.zeros((3, 4), "float32")
    expected[0, 0] = expected[2, 3] = 1
    np.testing.assert_array_equal(y.numpy(), expected)


def test_an_offset_is_looked_at_as_one_number() -> None:
    """Its digits were worked out by divisions: a scatter of 512 x 100 elements took 240 us in place of 185."""
    guarded = guard_writes(Flat)
    assert guarded.script().count("if place >=") == 1
    at = np.array([0, -1, 23, 24, 9, 1 << 40], "int64")
    y = tvm.runtime.tensor(np.zeros((3, 2, 4), "float32"))
    tvm.compile(guarded, "llvm")["main"](tvm.runtime.tensor(at), y)
    assert set(np.flatnonzero(y.numpy())) == {0, 9, 23}


def test_an_offset_that_counts_fewer_elements_than_there_are_is_looked_at_in_parts() -> None:
    """Two to the power of 31 elements, which 32 bits can't say: ``Literal value 2147483648 exceeds range of int32``."""
    text = guard_writes(Vast).script()
    assert "place0 < 65536" in text
    assert "place1 < 32768" in text


def test_writes_at_known_indices_stay() -> None:
    assert structural_equal(guard_writes(Plain), Plain)


def test_a_scatter_of_constants_is_computed_ahead() -> None:
    data, at, updates = np.zeros((2, 3), "float32"), np.array([[1], [2]], "int64"), np.ones((2, 1), "float32")
    constants = [relax.const(one, str(one.dtype)) for one in (data, at, updates)]
    mod = program(lambda b, x: b.emit(R.add(x, b.emit(R.scatter_elements(*constants, axis=1)))), (2, 3))
    assert "scatter" not in fold_constants(mod, Notes()).script()
    run = tvm.relax.VirtualMachine(eqsat_layout.compile(mod), tvm.cpu())["main"]
    got = run(tvm.runtime.tensor(np.zeros((2, 3), "float32"))).numpy()
    np.testing.assert_array_equal(got, np.array([[0, 1, 0], [0, 0, 1]], "float32"))


@I.ir_module
class Counted:
    @T.prim_func(s_tir=True)
    def main(count: T.Buffer((1,), "int64"), y: T.Buffer((3,), "float32")):
        with T.sblock("counted"):
            for i in range(count[0]):
                j = T.bind(i * T.int64(2))
                y[j] = T.float32(1)


def test_a_loop_that_is_as_long_as_memory_says_writes_within_its_buffer() -> None:
    kernel = tvm.compile(guard_writes(Counted), "llvm")
    y = tvm.runtime.tensor(np.zeros(3, "float32"))
    kernel["main"](tvm.runtime.tensor(np.array([100_000], "int64")), y)
    np.testing.assert_array_equal(y.numpy(), np.array([1, 0, 1], "float32"))


@pytest.mark.parametrize("at", [1 << 30, -(1 << 30), 2])
def test_a_program_writes_at_no_index_beyond_its_tensor(at: int) -> None:
    indices = relax.const(np.array([at, 1], "int64"))
    updates = relax.const(np.array([7, 5], "float32"))
    mod = program(lambda b, x: b.emit(R.scatter_elements(x, indices, updates)), (3,))
    machine = relax.VirtualMachine(eqsat_layout.compile(mod), tvm.cpu())
    got = machine["main"](tvm.runtime.tensor(np.zeros(3, "float32"))).numpy()
    np.testing.assert_array_equal(got, np.array([0, 5, 7 if at == 2 else 0], "float32"))


@pytest.mark.parametrize("shape", [("n", 3, 3), (3, "n")])
def test_running_sums_of_nothing_write_nothing(shape: tuple[str | int, ...]) -> None:
    """TVM's kernel begins with the first element of each row, behind the end of a tensor that has none (found by the
    rule fuzzer)."""
    n, builder = tirx.Var("n", "int64"), relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([n if extent == "n" else extent for extent in shape], "int32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(relax.op.cumsum(x, axis=shape.index("n"), exclusive=True)))
        builder.emit_func_output(result)
    executable = eqsat_layout.compile(builder.get(), make_target(None, True).at_any_address)
    empty = tvm.runtime.tensor(np.ones([0 if extent == "n" else extent for extent in shape], "int32"))
    assert memory_fault(executable, [("main", [empty])]) == ""
