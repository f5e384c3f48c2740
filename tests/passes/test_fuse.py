"""Fusing on the way to a build: what the outside calls stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
import tvm_ffi
from programs import program
from tvm import relax, te, tirx

import eqsat_layout
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fuse import fuse


def grouped_addition() -> Any:
    """A function of a group that was fused before, under a public name, and a caller of it."""
    builder = relax.BlockBuilder()
    ty = relax.TensorType((10, 20), "float32")

    def addition(*params: Any) -> Any:
        return builder.emit_output(builder.call_te(lambda x, y: tvm.topi.add(x, y), *params))

    x, y = relax.Var("x", ty), relax.Var("y", ty)
    with builder.function("fused_add", [x, y], attrs={"Primitive": True}):
        with builder.dataflow():
            output = addition(x, y)
        builder.emit_func_output(output)
    group = builder.get().get_global_var("fused_add")
    x, y = relax.Var("x", ty), relax.Var("y", ty)
    with builder.function("main", [x, y]):
        with builder.dataflow():
            output = builder.emit_output(relax.Call(group, [x, y]))
        builder.emit_func_output(output)
    return builder.get()


def test_a_public_group_can_still_be_called() -> None:
    """TVM's test_fuse_tir: ``compile`` made a PrimFunc of it, and the virtual machine did not know its name."""
    machine = relax.VirtualMachine(eqsat_layout.compile(grouped_addition()), tvm.cpu())
    x, y = (np.full((10, 20), value, "float32") for value in (2.0, 3.0))
    for name in ("main", "fused_add"):
        result = machine[name](tvm.runtime.tensor(x), tvm.runtime.tensor(y)).numpy()
        np.testing.assert_array_equal(result, x + y)


def test_groups_of_nothing_but_parts_of_tuples() -> None:
    """TVM's test_tuple_nested: FuseOps makes groups without a kernel, which FuseTIR has no name for."""
    ty = relax.TensorType((3, 3), "float32")
    x = relax.Var("x", relax.TupleType([relax.TupleType([ty, ty]), ty]))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            pair = builder.emit(relax.TupleGetItem(x, 0))
            output = builder.emit_output(relax.op.add(relax.TupleGetItem(pair, 1), relax.TupleGetItem(x, 1)))
        builder.emit_func_output(output)
    machine = relax.VirtualMachine(eqsat_layout.compile(builder.get()), tvm.cpu())
    one, two, three = (np.full((3, 3), value, "float32") for value in (1.0, 2.0, 3.0))
    given = tvm_ffi.convert([[tvm.runtime.tensor(one), tvm.runtime.tensor(two)], tvm.runtime.tensor(three)])
    np.testing.assert_array_equal(machine["main"](given).numpy(), two + three)


def test_a_group_that_tvm_cannot_fuse_is_its_calls() -> None:
    """TVM's test_supported_implicit_padding: FuseTIR fails on a PrimFunc of any size in a group with a known one."""
    m, n = tirx.Var("m", "int64"), tirx.Var("n", "int64")
    data = te.placeholder((m,), "float32", name="data")
    head = te.create_prim_func([data, te.compute((n,), lambda i: data[i], name="head")]).without_attr("global_symbol")

    def body(builder: Any, x: Any) -> Any:
        negated = builder.emit(relax.op.negative(x))
        cut = relax.call_tir(builder.add_func(head, "head"), negated, relax.TensorType((14,), "float32"))
        return builder.emit(relax.op.negative(builder.emit(cut)))

    mod = relax.transform.LegalizeOps()(program(body, (16,)))
    notes = Notes()
    names = [str(var.name_hint) for var in fuse(mod, notes).functions]
    assert len(names) > 2
    assert "FuseTIR fails" in str(list(notes))
    x = np.arange(16, dtype="float32")
    machine = relax.VirtualMachine(eqsat_layout.compile(mod), tvm.cpu())
    np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(x)).numpy(), x[:14])


def test_a_body_that_is_no_block_is_fused_with_nothing() -> None:
    """TVM's test_clip of ONNX: PrimFuncs that do nothing, between calls that could be fused."""
    handles = [tirx.Var(name, "handle") for name in "ab"]
    nothing = tirx.PrimFunc(handles, tirx.Evaluate(0))

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(relax.op.negative(x))
        z = relax.call_tir(builder.add_func(nothing, "nothing"), y, relax.TensorType((16,), "float32"))
        return builder.emit(relax.op.negative(builder.emit(z)))

    notes = Notes()
    fuse(relax.transform.LegalizeOps()(program(body, (16,))), notes)
    assert list(notes) == ["fused with nothing, because their bodies are no blocks: nothing"]


def test_a_size_that_is_written_in_another_order_is_not_taken_for_its_part() -> None:
    """``torch.diff(x, prepend=x[:, :1])``: FuseTIR learned from ``n + min(1, n)`` that the one size is the other."""
    n, m = (tirx.Var(name, "int64") for name in "nm")
    one = tirx.IntImm("int64", 1)
    data = te.placeholder((tirx.Min(one, m) + m,), name="data")
    kernels = [te.compute((m,), lambda i: data(i + 1), "after"), te.compute((m,), lambda i: data(i), "before")]
    builder = relax.BlockBuilder()
    ty = relax.TensorType((n,), "float32")
    x, known = relax.Var("x", relax.TensorType((n + tirx.Min(one, n),), "float32")), relax.Var("known", ty)
    with builder.function("main", [known, x]):
        with builder.dataflow():
            funcs = [te.create_prim_func([data, kernel]).without_attr("global_symbol") for kernel in kernels]
            calls = [relax.call_tir(builder.add_func(func, "part"), [x], ty) for func in funcs]
            after, before = map(builder.emit, calls)
            output = builder.emit_output(builder.call_te(lambda a, b: tvm.topi.subtract(a, b), after, before))
        builder.emit_func_output(output)
    given = np.random.default_rng(0).standard_normal(8).astype("float32")
    machine = relax.VirtualMachine(tvm.compile(fuse(builder.get(), Notes()), "llvm"), tvm.cpu())
    made = machine["main"](*map(tvm.runtime.tensor, (given[1:], given))).numpy()
    np.testing.assert_allclose(made, np.diff(given), atol=1e-6)


def test_sizes_of_calls_put_back_are_those_of_the_program() -> None:
    """Llama exported with a dynamic batch: ``arange(batch) * seq`` was of a size that nothing said."""
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    x = relax.Var("x", relax.TensorType((n, m), "int64"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            rows = builder.emit(relax.op.arange(0, n, 1, "int64"))
            columns = builder.emit(relax.op.shape_to_tensor(builder.emit(relax.ShapeExpr([m]))))
            begins = builder.emit(relax.op.reshape(builder.emit(relax.op.multiply(rows, columns)), (n, 1)))
            output = builder.emit_output(relax.op.add(x, begins))
        builder.emit_func_output(output)
    machine = relax.VirtualMachine(eqsat_layout.compile(builder.get()), tvm.cpu())
    result = machine["main"](tvm.runtime.tensor(np.zeros((3, 5), "int64"))).numpy()
    np.testing.assert_array_equal(result, np.repeat([[0], [5], [10]], 5, axis=1))


def test_a_slice_between_sizes_is_fused() -> None:
    """How long it is depends on the sign of its ends, which TVM says by a call: ``Cannot find the FInferType attribute
    registered to op: prim.if_then_else``."""
    n = tirx.Var("n", "int64")
    x, y = (relax.Var(name, relax.TensorType((rows, 3), "float32")) for name, rows in (("x", n), ("y", n * 2)))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            below = builder.emit(relax.op.strided_slice(y, [0], [n], [n * 2]))
            output = builder.emit_output(relax.op.permute_dims(builder.emit(relax.op.add(below, x))))
        builder.emit_func_output(output)
    machine = relax.VirtualMachine(eqsat_layout.compile(builder.get()), tvm.cpu())
    given = [np.random.default_rng(0).standard_normal((rows, 3), "float32") for rows in (4, 8)]
    made = machine["main"](*map(tvm.runtime.tensor, given)).numpy()
    np.testing.assert_array_equal(made, (given[1][4:] + given[0]).T)
