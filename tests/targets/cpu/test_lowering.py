"""The lowering for CPUs gives what TVM's own pipeline gives."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from targets.machines import AVX2
from tvm import relax, te, tirx

import eqsat_layout
from eqsat_layout.targets.cpu.lowering import pipeline_name
from eqsat_layout.targets.cpu.schedule import schedule_primfunc


def padded_sums(kind):
    """Sums of three neighbours of a padded row, in float32 for floats."""
    wide = "float32" if "float" in kind else "int32"
    x = te.placeholder((37, 50), kind, name="x")
    inside = te.compute(
        (37, 52), lambda i, j: tirx.if_then_else(tirx.all(j > 0, j < 51), x[i, j - 1], tirx.const(0, kind))
    )
    k = te.reduce_axis((0, 3))
    sums = te.compute((37, 50), lambda i, j: te.sum(inside[i, j + k].astype(wide), axis=k))
    return te.create_prim_func([x, sums], index_dtype_override="int64"), wide


def branches(_):
    """A select of two loads, of which one is out of bounds where it is not taken."""
    x = te.placeholder((64,), "float32", name="x")
    y = te.compute((64,), lambda i: tirx.Select(i < 3, tirx.const(0, "float32"), x[i - 3]))
    return te.create_prim_func([x, y], index_dtype_override="int64"), "float32"


def any_of_rows(kind):
    """Vectors of partial results, which LLVM got as bytes where it was told of booleans."""
    x = te.placeholder((3, 4, 2), kind, name="x")
    k = te.reduce_axis((0, 3))
    any_of = te.comm_reducer(lambda a, b: tirx.Or(a, b), lambda t: tirx.const(0, t))
    some = te.compute((4, 2), lambda i, j: any_of(x[k, i, j], axis=k))
    return te.create_prim_func(
        [x, te.compute((4, 2), lambda i, j: tirx.Not(some[i, j]))], index_dtype_override="int64"
    ), "bool"


@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        *((padded_sums, kind) for kind in ("float32", "float16", "bfloat16", "int8", "bool")),
        (branches, "float32"),
        (any_of_rows, "bool"),
    ],
)
def test_the_same_numbers_as_by_the_pipeline_of_tvm(make, kind, scheduled):
    func, wide = make(kind)
    (given, result) = (tuple(map(int, param.ty.shape)) for param in func.params)
    numbers = np.random.default_rng(0).integers(0, 2, given)
    data = tvm.runtime.tensor(numbers.astype(_numpy(kind)))
    found = []
    for pipeline, made in ((pipeline_name(), schedule_primfunc(func, AVX2) if scheduled else func), ("default", func)):
        mod = tvm.IRModule({"main": made.with_attr("global_symbol", "main")})
        out = tvm.runtime.tensor(np.full(result, 7, wide))
        tvm.tirx.build(mod, target={"kind": "llvm"}, pipeline=pipeline)["main"](data, out)
        found.append(out.numpy())
    np.testing.assert_array_equal(*found)
    assert not (found[0] == 7).all()


def _numpy(kind):
    if kind == "bfloat16":
        return pytest.importorskip("ml_dtypes").bfloat16
    return kind


@pytest.mark.parametrize("size", [3, 64])
@pytest.mark.parametrize("compare", [tirx.EQ, tirx.NE, tirx.LT, tirx.GE])
def test_booleans_are_compared(compare, size):
    """GPT-2 from ``torch.export`` compares masks: TVM's code generator takes booleans for floats there."""
    x, y = (te.placeholder((size,), "bool", name=name) for name in "xy")
    func = te.create_prim_func([x, y, te.compute((size,), lambda i: compare(x[i], y[i]))], index_dtype_override="int64")
    built = tvm.tirx.build(schedule_primfunc(func, AVX2), target="llvm", pipeline=pipeline_name())
    given = [np.arange(size) % 2 == 0, np.arange(size) % 3 == 0, np.zeros(size, bool)]
    arrays = list(map(tvm.runtime.tensor, given))
    built(*arrays)
    expected = {tirx.EQ: np.equal, tirx.NE: np.not_equal, tirx.LT: np.less, tirx.GE: np.greater_equal}[compare]
    np.testing.assert_array_equal(arrays[2].numpy(), expected(*given[:2]))


def test_booleans_are_compared_beside_what_is_not_simplified():
    """Comparisons that are hidden from the simplifier came after the pass that makes bytes of booleans."""
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType([16], "float32")) for name in "xy")
    with builder.function("main", [x, y]):
        with builder.dataflow():
            not_above = builder.emit(relax.op.logical_not(relax.op.greater_equal(x, y)))
            same = builder.emit_output(relax.op.equal(relax.op.less(x, y), not_above))
        builder.emit_func_output(same)
    notes = []
    session = eqsat_layout.Session(builder.get(), notes=notes)
    a, b = np.arange(16, dtype="float32"), np.full(16, 7, "float32")
    a[3] = np.nan
    np.testing.assert_array_equal(session.run(None, {"x": a, "y": b})[0], np.arange(16) != 3)
    assert not any("schedule" in note for note in notes)
