"""Nothing fails in silence: faults are raised or noted, and what is not scheduled says why.

Each kernel here once ended in an exception that was taken for a refusal.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pytest
import tvm
import tvm_ffi
from targets.machines import AVX2, built
from tvm import relax, s_tir, te, tirx
from tvm.script import tirx as T

from eqsat_layout.errors import EqsatError, Refused
from eqsat_layout.graph.legalize import legalize
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fuse import fuse
from eqsat_layout.targets.cpu.chains.join_calls import join_chains
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.schedule import schedule_module
from eqsat_layout.targets.cpu.single.families.family import Family
from eqsat_layout.targets.cpu.single.families.registry import FAMILIES
from eqsat_layout.tir.structural import nodes_of, structural_map

ZERO = tirx.const(0.0, "float32")
nn, op = relax.op.nn, relax.op


def kernels_of(mod):
    return {name.name_hint: f for name, f in mod.functions.items() if isinstance(f, tirx.PrimFunc)}


def without_notes(mod, machine=AVX2, **options):
    """``mod`` scheduled, of which there is nothing to say."""
    notes = Notes()
    scheduled = schedule_module(mod, machine, notes, **options)
    assert list(notes) == []
    return scheduled


def module(func, name="kernel"):
    return tvm.IRModule({name: func.with_attr("global_symbol", name)})


def two_kernels(make_module):
    mod = make_module(lambda emit, x: emit(nn.relu(emit(op.sum(x, axis=[0])))), (64, 256))
    return legalize(mod)


def raise_for_sums(sch, stage, epilogue, machine):
    if stage.is_reduction:
        raise AttributeError("a typo")
    raise Refused("for sums only")


BROKEN = Family("broken", raise_for_sums, lambda *_: True)


def test_a_fault_in_a_family_is_raised_in_strict_mode(make_module):
    with pytest.raises(EqsatError, match="kernel sum is not scheduled: AttributeError: a typo"):
        schedule_module(two_kernels(make_module), AVX2, Notes(strict=True), families=(BROKEN, *FAMILIES))


def test_strict_mode_is_on_in_these_tests(make_module):
    with pytest.raises(EqsatError, match="a typo"):
        schedule_module(two_kernels(make_module), AVX2, families=(BROKEN, *FAMILIES))


def test_a_fault_in_a_family_stays_with_its_kernel(make_module):
    mod, notes = two_kernels(make_module), Notes(strict=False)
    before, whole = kernels_of(mod), kernels_of(without_notes(mod))
    after = kernels_of(schedule_module(mod, AVX2, notes, families=(BROKEN, *FAMILIES)))
    assert after["sum"].same_as(before["sum"])
    assert tvm_ffi.structural_equal(after["relu"], whole["relu"]), "as if nothing had happened"
    assert list(notes) == ["kernel sum is not scheduled: AttributeError: a typo"]


def test_a_kernel_that_no_family_takes_says_why(make_module):
    notes, never = Notes(), Family("never", raise_for_sums, lambda stage, _: not stage.is_reduction)
    mod = legalize(make_module(lambda emit, x: emit(nn.relu(x)), (64, 64)))
    schedule_module(mod, AVX2, notes, families=[never])
    assert list(notes) == ["kernel relu: stage compute is not scheduled: never: for sums only"]


@dataclass(frozen=True)
class BrokenMachine(CpuMachine):
    """A machine of which something can't be known."""

    def lanes(self, element_bytes):
        raise OverflowError("no lanes")


def test_a_fault_in_joining_stays_with_its_kernel(make_module):
    machine, mod = BrokenMachine(**asdict(AVX2)), two_kernels(make_module)
    with pytest.raises(EqsatError, match="kernel sum is not joined: OverflowError: no lanes"):
        join_chains(mod, machine, Notes(strict=True))
    notes = Notes(strict=False)
    assert join_chains(mod, machine, notes) is mod
    assert set(notes) == {f"kernel {name} is not joined: OverflowError: no lanes" for name in ("relu", "sum")}


def test_a_body_that_is_no_block_is_refused():
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def opaque(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
        for i in range(8):
            b[i] = a[7 - i]

    notes = Notes()
    after = kernels_of(schedule_module(module(opaque), AVX2, notes))
    assert tvm_ffi.structural_equal(after["kernel"].body, opaque.body)
    assert list(notes) == ["kernel kernel is not scheduled: its body is no block"]


def test_a_block_that_stores_nothing_is_refused():
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def calls(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
        with T.sblock("root"):  # noqa: SIM117 (TVMScript reads it so)
            with T.sblock("call"):
                T.reads(a[0:8])
                T.writes(b[0:8])
                T.evaluate(T.call_packed("somebody.sorts", a.data, b.data))

    notes = Notes()
    schedule_module(module(calls), AVX2, notes)
    assert list(notes) == ["kernel kernel is not scheduled: block call stores nothing"]


def test_a_body_of_one_block_is_refused():
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def alone(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
        with T.sblock("alone"):
            T.reads(a[0:8])
            T.writes(b[0:8])
            for i in range(8):
                b[i] = a[7 - i]

    notes = Notes()
    schedule_module(module(alone), AVX2, notes)
    assert list(notes) == ["kernel kernel is not scheduled: its body is one block, alone"]


def test_tensors_without_elements_are_refused(make_module):
    notes = Notes()
    mod = legalize(make_module(lambda emit, x: emit(op.permute_dims(x, [0, 2, 1])), (0, 8, 2)))
    schedule_module(mod, AVX2, notes)
    assert list(notes) == ["kernel permute_dims is not scheduled: a tensor without elements"]


SCALARS = {
    "sum": lambda emit, x: emit(op.sum(x)),
    "largest and what follows": lambda emit, x: emit(op.exp(emit(op.max(x)))),
    "where the largest is": lambda emit, x: emit(op.argmax(x)),
    "standard deviation": lambda emit, x: emit(op.std(x)),
    "variance": lambda emit, x: emit(op.variance(x)),
}


@pytest.mark.parametrize("shape", [(64,), (17, 33, 3, 1), (48, 3, 100), (1, 3, 64), (5, 7)])
@pytest.mark.parametrize("name", SCALARS)
def test_reductions_to_one_element_are_in_vectors(make_module, unscheduled, run, arrays, name, shape):
    """All were done element by element: of a result without axes, the last axis was asked for.

    Beside a block under no loop TVM's rfactor ended in an internal error.
    """
    mod, (x,) = make_module(SCALARS[name], shape), arrays(shape)
    scheduled = without_notes(fuse(legalize(mod), Notes()))
    if np.prod(shape) % 8 == 0:
        assert "T.vectorized" in scheduled.script()
    got = run(built(scheduled), x)
    np.testing.assert_allclose(got, unscheduled(legalize(mod), x), rtol=1e-5)


def test_an_epilogue_of_a_result_without_axes(make_module, run, arrays):
    """The last one of no indices was asked for, and the kernel left alone."""
    x, k = te.placeholder((64,), name="x"), te.reduce_axis((0, 64), "k")
    total = te.compute((), lambda: te.sum(x[k], axis=k), name="total")
    twice = te.compute((1,), lambda i: total() * tirx.const(2.0, "float32"), name="twice")
    scheduled = without_notes(module(te.create_prim_func([x, twice], index_dtype_override="int64")))
    assert "T.vectorized" in scheduled.script()


def test_booleans_are_reduced_without_partial_results(make_module):
    """TVM's rfactor ends in an internal error for them, and the families after that were not tried."""
    x, k = te.placeholder((8, 64), "bool", name="x"), te.reduce_axis((0, 64), "k")
    either = te.comm_reducer(lambda a, b: tirx.any(a, b), lambda _: tirx.const(False, "bool"))
    func = te.create_prim_func([x, te.compute((8,), lambda i: either(x[i, k], axis=k))], index_dtype_override="int64")
    without_notes(module(func))


def first_of_largest(columns: int):
    """Where the largest element of each row is: the first of equal ones, by the order of the steps only."""

    def better(held, other):
        is_held = held[1] >= other[1]
        return tirx.Select(is_held, held[0], other[0]), tirx.Select(is_held, held[1], other[1])

    reducer = te.comm_reducer(better, lambda i, v: (tirx.const(-1, i), tirx.min_value(v)), name="largest")
    x, k = te.placeholder((10, columns), name="x"), te.reduce_axis((0, columns), "k")
    where, most = te.compute((10,), lambda i: reducer((tirx.Cast("int64", k.var), x[i, k]), axis=k), name="where")
    return te.create_prim_func([x, where, most], index_dtype_override="int64").without_attr("global_symbol")


def test_equal_elements_keep_their_order():
    """TVM's test_fuse_return_partial_result: partial results took another one of the largest elements."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((10, 64), "float32"))
    kinds = [relax.TensorType((10,), "int64"), relax.TensorType((10,), "float32")]
    with builder.function("main", [x]):
        result = builder.emit(relax.call_tir(builder.add_func(first_of_largest(64), "largest"), [x], kinds))
        builder.emit_func_output(result)
    notes = Notes()
    scheduled = schedule_module(builder.get(), AVX2, notes)
    given = np.random.default_rng(0).integers(0, 3, (10, 64)).astype("float32")
    machine = relax.VirtualMachine(built(scheduled), tvm.cpu())
    where, most = machine["main"](tvm.runtime.tensor(given))
    np.testing.assert_array_equal(where.numpy(), given.argmax(1))
    np.testing.assert_array_equal(most.numpy(), given.max(1))


def test_an_epilogue_that_runs_backwards(make_module, run, arrays):
    """TVM transforms no block along an axis that is run backwards: an internal error."""
    mod = make_module(lambda emit, x: emit(op.flip(emit(op.max(x, axis=[2], keepdims=True)), 1)), (1, 3, 6, 1))
    joined = tvm.relax.transform.FuseTIR()(relax.transform.FuseOps()(legalize(mod)))
    notes = Notes()
    scheduled = schedule_module(join_chains(joined, AVX2, notes), AVX2, notes)
    assert list(notes) == []
    (x,) = arrays((1, 3, 6, 1))
    got = run(built(scheduled), x)
    np.testing.assert_array_equal(got, x.max(2, keepdims=True)[:, ::-1])


@pytest.mark.parametrize("shape", [(9, 2, 3), (2, 3, 40), (64, 3, 20)])
def test_transposes_without_squares_or_short_rows(make_module, run, arrays, shape):
    """No axis lies along memory, or rows are shorter than any vector: the search ended in StopIteration."""
    mod = make_module(lambda emit, x: emit(op.permute_dims(x, [2, 1, 0])), shape)
    (x,) = arrays(shape)
    got = run(built(without_notes(legalize(mod))), x)
    np.testing.assert_array_equal(got, x.transpose(2, 1, 0))


def test_blocks_of_one_name_are_told_apart(make_module, unscheduled, run, arrays):
    """They are looked up by their names."""
    shapes = (40, 48), (48,), (48,)
    body = lambda emit, x, g, b: emit(nn.layer_norm(x, g, b, axes=[-1]))  # noqa: E731
    mod = legalize(make_module(body, *shapes))

    def same_name(block):
        parts = (block.iter_vars, block.reads, block.writes, "block", block.body, block.init, block.alloc_buffers)
        return block if block.name_hint == "root" else s_tir.SBlock(*parts)

    renamed = {
        name: structural_map(f, (s_tir.SBlock, same_name)) if isinstance(f, tirx.PrimFunc) else f
        for name, f in mod.functions.items()
    }
    (func,) = (f for f in renamed.values() if isinstance(f, tirx.PrimFunc))
    assert sum(block.name_hint == "block" for block in nodes_of(func.body, s_tir.SBlock)) > 2
    (wanted,), (got,) = (kernels_of(without_notes(m)).values() for m in (mod, tvm.IRModule(renamed)))
    assert tvm_ffi.structural_equal(got, wanted)


@pytest.mark.parametrize(("size", "is_long"), [(512, True), (16, False)])
def test_long_stages_that_no_fast_family_has_are_named(size, is_long):
    """Every third element of a row, from its start again at the end: no vector of these lies in memory."""
    x = te.placeholder((size, size), name="x")
    k = te.reduce_axis((0, size), "k")
    every_third = te.compute((size,), lambda i: te.sum(x[i, tirx.floormod(k * 3, size)], [k]), "every_third")
    notes = Notes()
    schedule_module(module(te.create_prim_func([x, every_third], index_dtype_override="int64")), AVX2, notes)
    told = [note for note in notes if "stage every_third is done without vectors" in note]
    assert len(told) == is_long
    assert all("register tiles: no vector axis" in note for note in told)


def test_a_kernel_that_calls_a_library_stays_as_it_is_and_is_right(make_module):
    """The schedule of a median took the library's sort, which says of no buffer that it is written, for nothing."""
    mod = make_module(lambda emit, x: emit(op.median(emit(op.permute_dims(x, [1, 0])), axis=0)), (64, 33))
    notes = Notes(strict=True)
    scheduled = schedule_module(fuse(legalize(mod), notes), AVX2, notes)
    (note,) = notes
    assert note.endswith(" is not scheduled: it calls a library")
    x = np.random.default_rng(0).standard_normal((64, 33)).astype("float32")
    machine = relax.VirtualMachine(built(scheduled), tvm.cpu())
    values, places = (part.numpy() for part in machine["main"](tvm.runtime.tensor(x)))
    np.testing.assert_array_equal(values, np.median(x, axis=1))
    np.testing.assert_array_equal(x[np.arange(64), places], values)


def test_a_block_may_be_called_as_the_outermost():
    """That was renamed in its place, and nothing found: a kernel without a schedule (TVM's test_ignore_call_tir)."""

    @T.prim_func(s_tir=True)
    def relu(a: T.Buffer((64, 56), "float32"), b: T.Buffer((64, 56), "float32")):
        for i, j in T.grid(64, 56):
            with T.sblock("root"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = T.max(a[vi, vj], T.float32(0))

    without_notes(tvm.IRModule({"relu": relu}))
