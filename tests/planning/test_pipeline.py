"""``optimize`` and its arguments: the user's own rules, costs, time; and modules that are no good."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from compare import assert_same_fast
from programs import assert_untouched, constant, ops, program, transforms
from tvm import relax
from tvm.relax import op

import eqsat_layout
from eqsat_layout.cost.model import Roofline
from eqsat_layout.errors import EqsatError, MalformedModuleError, RuleError

RELU_TWICE = """
; relu(relu x) == relu x
(rule ((= y (Op k (Arg x (End)))) (is k "relax.nn.relu") (= x (Op j (Arg z (End)))) (is j "relax.nn.relu"))
      ((union y x)) :ruleset logical :name "relu-twice")
"""

SILU = """
; x * sigmoid(x) == silu(x), where the program has that one too
(rule ((= y (Op k (Arg x (Arg s (End))))) (is k "relax.multiply")
       (= s (Op j (Arg x (End)))) (is j "relax.sigmoid")
       (= z (Op l (Arg x (End)))) (is l "relax.nn.silu"))
      ((union y z)) :ruleset logical :name "silu")
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.egg"
    path.write_text(text)
    return path


def test_a_rule_of_the_user_takes_effect(tmp_path: Path) -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.relu(builder.emit(op.nn.relu(builder.emit(op.nn.relu(x))))))
        return builder.emit(op.exp(y))

    mod = program(body, (4, 6))
    assert eqsat_layout.optimize(mod) is mod
    optimized = eqsat_layout.optimize(mod, rules=[written(tmp_path, RELU_TWICE)])
    assert ops(optimized) == ["nn.relu", "exp"]
    assert_same_fast(mod, optimized)


def test_a_rule_of_the_user_works_through_layouts(tmp_path: Path) -> None:
    """The second relu is of the first one's transpose; the rule is stated for plain values only."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.relu(builder.emit(op.permute_dims(x, [1, 0]))))
        y = builder.emit(op.permute_dims(builder.emit(op.permute_dims(y, [1, 0])), [1, 0]))
        return builder.emit(op.permute_dims(builder.emit(op.nn.relu(y)), [1, 0]))

    mod = program(body, (4, 6))
    optimized = eqsat_layout.optimize(mod, rules=[str(written(tmp_path, RELU_TWICE))])
    assert ops(optimized) == ["nn.relu"]
    assert_same_fast(mod, optimized)


def test_a_rule_of_two_ops(tmp_path: Path) -> None:
    def body(builder: Any, x: Any) -> Any:
        a = builder.emit(op.multiply(x, builder.emit(op.sigmoid(x))))
        b = builder.emit(op.nn.silu(x))
        return op.subtract(a, builder.emit(op.exp(b)))

    mod = program(body, (4, 6))
    optimized = eqsat_layout.optimize(mod, rules=[written(tmp_path, SILU)])
    assert sorted(ops(optimized)) == ["exp", "nn.silu", "subtract"]
    assert_same_fast(mod, optimized)


def test_a_rule_that_makes_a_value_a_part_of_itself(tmp_path: Path) -> None:
    """x == x + 0 gives a class that contains itself; what is extracted does not."""
    rule = """
; x == x - y where y is the parameter that a test makes 0
(rule ((= y (Op k (Arg x (Arg z (End))))) (is k "relax.subtract")) ((union y x)) :ruleset logical :name "minus-zero")
"""
    mod = program(lambda b, x, zero: op.exp(b.emit(op.subtract(b.emit(op.tanh(x)), zero))), (4, 6), (4, 6))
    optimized = eqsat_layout.optimize(mod, rules=[written(tmp_path, rule)])
    assert ops(optimized) == ["tanh", "exp"]
    relax.analysis.well_formed(optimized)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("(rule ((want y f))\n ((ask-nonsense y f)) :ruleset flow)", "mine.egg:2"),
        (
            '(relation ask-nonsense (Tensor String))\n(rule ((want y f)) ((ask-nonsense y f)) :ruleset flow :name "n")',
            "nonsense",
        ),
    ],
)
def test_a_broken_rule_file(tmp_path: Path, text: str, says: str) -> None:
    mod = program(lambda b, x: op.permute_dims(b.emit(op.nn.relu(x)), [1, 0]), (4, 6))
    with pytest.raises(RuleError, match=says):
        eqsat_layout.optimize(mod, rules=[written(tmp_path, text)])


class RewritesAreCheap(Roofline):
    """Transposed matmuls cost a fortune, rewrites next to nothing."""

    def convert(self, tensor: Any, source: Any, target: Any, *, fused: bool = False) -> float:
        return 1e-12

    def run(self, op_: Any, operands: Any, results: Any, *, fused: Any = frozenset()) -> float:
        return 1.0 if any(f is not None and not f.is_row_major for f in (*operands, *results)) else 1e-12


def test_a_cost_model_of_the_user_decides() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.relu(builder.emit(op.permute_dims(x, [1, 0]))))
        return op.permute_dims(y, [1, 0])

    mod = program(body, (64, 32))
    assert transforms(eqsat_layout.optimize(mod)) == 0
    assert transforms(eqsat_layout.optimize(mod, cost_model=RewritesAreCheap())) == 2

    def summed(builder: Any, x: Any) -> Any:
        y = builder.emit(op.sum(builder.emit(op.permute_dims(x, [1, 2, 0])), axis=[0], keepdims=True))
        return builder.emit(op.permute_dims(y, [0, 2, 1]))

    mod = program(summed, (4, 6, 8))
    assert transforms(eqsat_layout.optimize(mod, cost_model=RewritesAreCheap())) == 2
    assert transforms(eqsat_layout.optimize(mod)) <= 1


@dataclass(frozen=True)
class ByName(Roofline):
    """The costs of some ops, times a factor."""

    factors: dict[str, float] = field(default_factory=dict)

    def run(self, op_: Any, operands: Any, results: Any, *, fused: Any = frozenset()) -> float:
        return super().run(op_, operands, results, fused=fused) * self.factors.get(op_.name, 1.0)


def test_a_cost_model_of_the_user_may_hold_a_table() -> None:
    """It has no hash: each cost was refused with "unhashable type: 'dict'"."""
    mod = program(lambda b, x: op.exp(b.emit(op.tanh(x))), (64, 32))
    once, twice = (eqsat_layout.plan(mod, cost_model=ByName(factors={"relax.exp": n})).cost for n in (1.0, 2.0))
    assert once < twice


@pytest.mark.parametrize("limit", [0, 0.0, 1e-9, 1.0])
def test_no_time_still_gives_a_plan(limit: float) -> None:
    def body(builder: Any, x: Any) -> Any:
        y = x
        for i in range(8):
            z = builder.emit(op.nn.conv2d(y, constant(16, 16, 3, 3, seed=i), padding=1), f"c{i}")
            y = builder.emit(op.nn.relu(builder.emit(op.add(y, z))))
        return y

    layouts = [["NHWC", "OHWI"], ["NCHW4c", "OIHW4i4o"], ["NCHW8c", "OIHW8i8o"]]
    mod = program(body, (1, 16, 6, 6), frozen={f"c{i}": layouts[i % 3] for i in range(8)})
    plan = eqsat_layout.plan(mod, time_limit=limit)
    assert plan.lower_bound <= plan.cost * (1 + 1e-9)
    assert 0 <= plan.gap < 1
    assert_same_fast(mod, plan.module)


def test_validate_runs_both_modules() -> None:
    mod = program(lambda b, x: op.permute_dims(b.emit(op.nn.relu(b.emit(op.permute_dims(x, [1, 0])))), [1, 0]), (4, 6))
    assert ops(eqsat_layout.optimize(mod, validate=True)) == ["nn.relu"]


def test_a_wrong_rule_is_seen_by_validation(tmp_path: Path) -> None:
    wrong = RELU_TWICE.replace('(is j "relax.nn.relu")', '(is j "relax.exp")').replace("relu-twice", "wrong")
    mod = program(lambda b, x: op.nn.relu(b.emit(op.exp(b.emit(op.negative(x))))), (4, 6))
    eqsat_layout.optimize(mod, rules=[written(tmp_path, wrong)], validate=True)  # exp is positive: right after all
    wrong = wrong.replace("relax.nn.relu", "relax.negative")
    mod = program(lambda b, x: op.negative(b.emit(op.exp(b.emit(op.nn.relu(x))))), (4, 6))
    with pytest.raises(EqsatError, match="main: result 0 differs"):
        eqsat_layout.optimize(mod, rules=[written(tmp_path, wrong)], validate=True)


# ---- modules that are no good ----------------------------------------------------------------------------------------


def replaced(mod: Any, bindings: list[Any]) -> Any:
    """``mod`` with other bindings in its only block, unchecked."""
    function = mod["main"]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], function.body.body)
    result = relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)
    return tvm.IRModule({mod.get_global_var("main"): result})


def plain() -> Any:
    return program(lambda b, x: b.emit(op.nn.relu(b.emit(op.exp(x), "inner")), "outer"), (3, 4))


def test_a_variable_that_nothing_defines() -> None:
    mod = plain()
    with pytest.raises(MalformedModuleError, match="inner"):
        eqsat_layout.optimize(replaced(mod, list(mod["main"].body.blocks[0].bindings)[1:]))


def test_a_variable_that_is_used_before_it_is_defined() -> None:
    mod = plain()
    first, *rest = mod["main"].body.blocks[0].bindings
    with pytest.raises(MalformedModuleError, match="inner"):
        eqsat_layout.optimize(replaced(mod, [rest[0], first, *rest[1:]]))


def test_a_call_of_the_wrong_type() -> None:
    mod = plain()
    first, *rest = mod["main"].body.blocks[0].bindings
    wrong = relax.Call(first.value.op, first.value.args, ret_ty=relax.TensorType((4, 3), "float32"))
    var = relax.DataflowVar("inner", relax.TensorType((4, 3), "float32"))
    outer = relax.Call(rest[0].value.op, [var], ret_ty=rest[0].value.ty)
    bad = replaced(mod, [relax.VarBinding(var, wrong), relax.VarBinding(rest[0].var, outer), *rest[1:]])
    with pytest.raises(MalformedModuleError, match=r"main: relax\.exp bound to 'inner'"):
        eqsat_layout.optimize(bad)


def test_an_error_in_planning_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """That in which kernels are made lived as long as the error was kept."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    mod = program(lambda b, x: op.exp(b.emit(op.tanh(b.emit(op.sin(b.emit(op.cos(b.emit(op.sigmoid(x))))))))), (3, 4))
    *rest, last = mod["main"].body.blocks[0].bindings
    wrong = relax.Call(last.value.op, last.value.args, ret_ty=relax.TensorType((4, 3), "float32"))
    threads = threading.active_count()
    with pytest.raises(MalformedModuleError) as kept:
        eqsat_layout.optimize(replaced(mod, [*rest, relax.VarBinding(last.var, wrong)]))
    assert threading.active_count() == threads, kept


def test_a_call_with_too_few_arguments() -> None:
    mod = plain()
    first, *rest = mod["main"].body.blocks[0].bindings
    wrong = relax.Call(tvm.ir.Op.get("relax.add"), first.value.args, ret_ty=first.value.ty)
    with pytest.raises(MalformedModuleError, match=r"relax\.add"):
        eqsat_layout.optimize(replaced(mod, [relax.VarBinding(first.var, wrong), *rest]))


def test_a_call_of_a_function_that_is_not_there() -> None:
    mod = program(lambda b, x: op.permute_dims(b.emit(op.permute_dims(x, [1, 0])), [1, 0]), (3, 4))
    x = mod["main"].params[0]
    missing = relax.BlockBuilder().add_func(plain()["main"], "missing")
    first, *rest = mod["main"].body.blocks[0].bindings
    call = relax.call_tir(missing, relax.Tuple([x]), relax.TensorType((4, 3), "float32"))
    builder = relax.BlockBuilder()
    bad = replaced(mod, [relax.VarBinding(first.var, builder.normalize(call)), *rest])
    with pytest.raises(MalformedModuleError, match="missing"):
        eqsat_layout.optimize(bad)


def test_a_module_that_is_not_in_normal_form_is_brought_into_it(run: Any, arrays: Any) -> None:
    """TVM builds it, ours said which pass to run first: calls within a call, without types or variables."""
    x = relax.Var("x", relax.TensorType((3, 4), "float32"))
    call = relax.Call(tvm.ir.Op.get("relax.exp"), [relax.Call(tvm.ir.Op.get("relax.nn.relu"), [x])])
    function = relax.Function([x], call, relax.TensorType((3, 4), "float32")).with_attr("global_symbol", "main")
    mod = tvm.IRModule({"main": function})
    before = tvm_ffi.structural_hash(mod)
    (data,) = arrays((3, 4))
    expected = np.exp(np.maximum(data, 0))
    np.testing.assert_allclose(run(eqsat_layout.compile(mod, "llvm"), data), expected, rtol=1e-6)
    np.testing.assert_allclose(run(tvm.compile(eqsat_layout.optimize(mod)), data), expected, rtol=1e-6)
    assert tvm_ffi.structural_hash(mod) == before


@pytest.mark.parametrize("mod", [None, 3, {}, plain()["main"]])
def test_what_is_no_module(mod: Any) -> None:
    with pytest.raises(MalformedModuleError, match="IRModule"):
        eqsat_layout.optimize(mod)


def test_an_untouched_module_is_the_very_module() -> None:
    mod = plain()
    assert eqsat_layout.optimize(mod) is mod
    assert_untouched(mod, eqsat_layout.OptimizeLayout()(mod))


def test_a_missing_rule_file_is_named_before_the_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("no model")
    with pytest.raises(RuleError, match=r"nowhere\.egg"):
        eqsat_layout.plan(tmp_path / "model.py", rules=[tmp_path / "nowhere.egg"])


_IMPORTED_FOR_A_PLAN = """
import sys

import eqsat_layout
from tvm import relax

builder = relax.BlockBuilder()
shapes = {"x": (1, 16, 8, 8), "w": (16, 16, 1, 1)}
x, w = (relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items())
with builder.function("main", [x, w]):
    with builder.dataflow():
        y = builder.emit_output(relax.op.nn.relu(builder.emit(relax.op.nn.conv2d(x, w))))
    builder.emit_func_output(y)
plan = eqsat_layout.plan(builder.get())
print(*sys.modules)
assert str(plan) and plan.html() and plan.explain() and plan.module is not None
"""


def test_a_plan_imports_what_a_plan_needs() -> None:
    """What prints, validates, writes down or builds a plan took half of the time of the first one."""
    ran = subprocess.run([sys.executable, "-c", _IMPORTED_FOR_A_PLAN], capture_output=True, text=True, check=True)
    loaded = ran.stdout.split()
    rooms = ("rich", "eqsat_layout.validation", "eqsat_layout.report.html", "eqsat_layout.targets.schedules.", "psutil")
    builds = ("eqsat_layout.targets.cpu.kernels", "eqsat_layout.passes.prepare", "eqsat_layout.graph.emit")
    assert "eqsat_layout.planning.summary" in loaded
    assert [name for name in loaded if name.startswith(rooms) or name in builds] == []
