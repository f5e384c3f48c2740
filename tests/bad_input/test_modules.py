"""Modules that are malformed or unusual: one row for each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tvm
from bad_input.rows import Row, check, options, relu_chain
from programs import program
from tvm import relax
from tvm.relax import op as R
from tvm.script import ir as I
from tvm.script import tirx as T

import eqsat_layout
from eqsat_layout.errors import EqsatError, MalformedModuleError


def changed_main(make: Callable[[Any], Any]) -> Callable[[], Any]:
    """``relu_chain`` with another ``main``."""

    def mod() -> Any:
        result = relu_chain()
        result.update_func(result.get_global_var("main"), make(result["main"]))
        return result

    return mod


def without_block(function: Any) -> Any:
    return relax.Function(function.params, relax.SeqExpr([], function.body.body), function.ret_ty, True, function.attrs)


def without_params(function: Any) -> Any:
    return relax.Function([], function.body, function.ret_ty, True, function.attrs)


def twice_bound(function: Any) -> Any:
    (block,) = function.body.blocks
    bindings = [block.bindings[0], *block.bindings]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], function.body.body)
    return relax.Function(function.params, body, function.ret_ty, True, function.attrs)


def unknown_function(function: Any) -> Any:
    (block,) = function.body.blocks
    first = block.bindings[0]
    call = relax.Call(tvm.ir.GlobalVar("gone"), [function.params[0]], ret_ty=first.var.ty)
    body = relax.SeqExpr(
        [relax.DataflowBlock([relax.VarBinding(first.var, call), *block.bindings[1:]])], function.body.body
    )
    return relax.Function(function.params, body, function.ret_ty, True, function.attrs)


def extern_and_recursive() -> Any:
    builder = relax.BlockBuilder()
    ty = relax.TensorType([4, 6], "float32")
    x, y = relax.Var("x", ty), relax.Var("y", ty)
    again = builder.add_func(relax.Function([y], relax.SeqExpr([], y), ty, False), "again")
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(R.nn.relu(x))
        z = builder.emit(relax.Call(relax.ExternFunc("no.such.function"), [y], ty_args=[ty]))
        builder.emit_func_output(z)
    mod = builder.get()
    own, result = relax.Var("x", ty), relax.Var("r", ty)
    call = relax.Call(again, [own], ret_ty=ty)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(result, call)])], result)
    mod.update_func(again, relax.Function([own], body, ty, False))
    return mod


def only_tir() -> Any:
    @I.ir_module
    class Mod:
        @T.prim_func(s_tir=True)
        def f(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.sblock("b"):
                    vi = T.axis.remap("S", [i])
                    y[vi] = x[vi]

    return Mod


def item_of_an_item() -> tvm.IRModule:
    """TVM wants a variable for the inner one."""
    number = relax.TensorType((), "int32")
    whole = relax.Var("t", relax.TupleType([relax.TupleType([number])]))
    item = relax.Var("r", number)
    binding = relax.VarBinding(item, relax.TupleGetItem(relax.TupleGetItem(whole, 0), 0))
    body = relax.SeqExpr([relax.BindingBlock([binding])], item)
    return tvm.IRModule({"main": relax.Function([whole], body, number).with_attr("global_symbol", "main")})


MODULE_ROWS = [
    Row("an item of an item", options(), None, mod=item_of_an_item),
    Row("nothing", options(), MalformedModuleError, ["NoneType"], mod=lambda: None),
    Row("a path to nothing", options(), EqsatError, ["model.onnx", "No such file"], mod=lambda: "model.onnx"),
    Row("a function", options(), MalformedModuleError, ["Function"], mod=lambda: relu_chain()["main"]),
    Row("a dictionary", options(), MalformedModuleError, ["dict"], mod=lambda: {"main": relu_chain()["main"]}),
    Row("no functions", options(), None, ["same"], mod=lambda: tvm.IRModule({})),
    Row("no Relax function", options(), None, ["same"], mod=only_tir),
    Row(
        "unbound variable in a module",
        options(),
        MalformedModuleError,
        ["well formed"],
        mod=changed_main(without_block),
    ),
    Row("parameters missing", options(), MalformedModuleError, ["well formed"], mod=changed_main(without_params)),
    Row("a variable bound twice", options(), MalformedModuleError, ["well formed"], mod=changed_main(twice_bound)),
    Row("a function that is gone", options(), MalformedModuleError, ["gone"], mod=changed_main(unknown_function)),
    Row("extern functions and recursion", options(), None, ["same"], mod=extern_and_recursive),
]


def test_a_batch_of_nothing_can_be_planned() -> None:
    """Desired layouts raised ZeroDivisionError in the cost model. Its result holds nothing in any layout."""
    mod = program(lambda b, x, w: R.nn.conv2d(x, w, padding=1), (0, 8, 6, 6), (8, 8, 3, 3))
    plan = eqsat_layout.plan(mod, desired_layouts={"relax.nn.conv2d": ["NHWC", "OHWI"]})
    assert 0 < plan.cost <= plan.input_cost


@pytest.mark.parametrize("row", MODULE_ROWS, ids=lambda row: row.name)
def test_bad_modules(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_LAYOUT_CACHE", str(tmp_path / "cache"))
    check(row, tmp_path)
