"""Validation: what is run, with which inputs, what poison finds, and who is blamed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import constant, program
from tvm import relax
from tvm.relax import op as R
from tvm.script import ir as I
from tvm.script import relax as rx
from tvm.script import tirx as T

import eqsat_layout
from eqsat_layout.cost.fusion import fusion_of
from eqsat_layout.cost.model import Roofline
from eqsat_layout.egraph.rules import read_all, rule_files
from eqsat_layout.egraph.saturate import saturate
from eqsat_layout.errors import ValidationError
from eqsat_layout.extract.baseline import baseline
from eqsat_layout.extract.decode import Decoder
from eqsat_layout.extract.region import Region
from eqsat_layout.extract.selection import Selection
from eqsat_layout.extract.solver.frontier import solve
from eqsat_layout.extract.tensors import Tensors
from eqsat_layout.graph.constants import ConstantPool
from eqsat_layout.graph.emit import emit_module
from eqsat_layout.graph.graph import Program
from eqsat_layout.graph.importer import import_module
from eqsat_layout.graph.steps import Convert, Steps
from eqsat_layout.maps import UNDEF
from eqsat_layout.passes.evaluate import evaluate
from eqsat_layout.soundness.programs.check import difference_up_to_order as fuzzed_difference
from eqsat_layout.targets.registry import target
from eqsat_layout.validation import blame, results
from eqsat_layout.validation.inputs import NoInputsError, random_inputs
from eqsat_layout.validation.results import difference
from eqsat_layout.validation.validate import check_equal, validate

FROZEN = {"relax.nn.conv2d": ["NCHW16c", "OIHW16i16o"]}

WRONG = """
(rule ((= y (Op k (Arg x (End)))) (is k "relax.negative") (= x (Op j (Arg z (End)))) (is j "relax.exp"))
      ((union y x)) :ruleset logical :name "negative-of-exp")
"""
RIGHT = """
(rule ((= y (Op k (Arg x (End)))) (is k "relax.nn.relu") (= x (Op j (Arg z (End)))) (is j "relax.nn.relu"))
      ((union y x)) :ruleset logical :name "relu-twice")
"""


def written(folder: Path, text: str, name: str = "mine.egg") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def chain(*functions: Callable[[Any], Any]) -> Callable[..., Any]:
    def body(builder: Any, x: Any) -> Any:
        for function in functions[:-1]:
            x = builder.emit(function(x))
        return functions[-1](x)

    return body


def two_packed_convolutions(builder: Any, x: Any) -> Any:
    y = builder.emit(R.nn.conv2d(x, constant(30, 30, 1, 1)))
    return R.nn.conv2d(builder.emit(R.sigmoid(y)), constant(30, 30, 1, 1, seed=1))


# ---- who is blamed ---------------------------------------------------------------------------------------------------


def wrong_program() -> Any:
    return program(chain(R.nn.relu, R.exp, R.negative, R.nn.relu, R.abs), (4, 6))


def test_a_mismatch_names_result_op_origin_and_the_rule_at_fault(tmp_path: Path) -> None:
    rules = [written(tmp_path, RIGHT, "right.egg"), written(tmp_path, RIGHT.replace("twice", "2") + WRONG)]
    with pytest.raises(ValidationError) as caught:
        eqsat_layout.optimize(wrong_program(), rules=rules, validate=True)
    text = str(caught.value)
    assert text.startswith("main: result 0 differs by ")
    assert "the first op that differs is relax.negative bound to 'lv2'" in text
    assert "it is made by relax.exp (as written; rules: negative-of-exp (mine.egg:5), impls, run)" in text
    assert text.endswith(f"it is right without the rule of {tmp_path / 'mine.egg'}:5")


def test_fallback_gives_the_input_back_and_says_why(tmp_path: Path) -> None:
    mod = wrong_program()
    plan = eqsat_layout.plan(mod, rules=[written(tmp_path, WRONG)], fallback=True)
    assert plan.module is mod
    assert not plan.changed
    assert plan.cost == plan.input_cost
    assert "the module is unchanged, because validation failed: main: result 0 differs" in plan.notes[0]
    assert "negative" in plan.notes[0]
    assert eqsat_layout.plan(mod, fallback=True).notes == ()


def test_a_fault_in_looking_for_the_op_does_not_hide_the_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was swallowed, and no op was named without a reason."""

    def broken(*_: Any) -> Any:
        raise KeyError("a slip")

    monkeypatch.setattr(blame, "_probes", broken)
    with pytest.raises(ValidationError, match=r"result 0 differs .*; which op differs first can't be told: KeyError: "):
        eqsat_layout.optimize(wrong_program(), rules=[written(tmp_path, WRONG)], validate=True)


def test_a_fault_between_two_regions_names_the_op(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each region was put in by itself, where constants that are taken for those of another one are right."""

    def body(builder: Any, x: Any) -> Any:
        for seed in range(2):
            y = builder.emit(R.nn.conv2d(x, constant(30, 30, 3, 3, seed=seed), padding=1))
            x = builder.match_cast(y, y.ty)
        return R.abs(x)

    mod = program(body, (1, 30, 6, 6), frozen=FROZEN)
    eqsat_layout.optimize(mod, validate=True)
    monkeypatch.setattr(ConstantPool, "_identity", lambda _, constant: constant.key)
    with pytest.raises(ValidationError, match=r"the first op that differs is relax.nn.conv2d bound to 'lv2'"):
        eqsat_layout.optimize(mod, validate=True)


def test_a_fault_in_a_function_that_is_called_names_the_op(tmp_path: Path) -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4, 6), "float32"))
    helper = wrong_program()["main"].without_attr("global_symbol")
    with builder.function("main", [x]):
        called = builder.emit(relax.Call(builder.add_func(helper, "helper"), [x]))
        builder.emit_func_output(called)
    with pytest.raises(ValidationError, match=r"in helper, the first op that differs is relax.negative bound"):
        eqsat_layout.optimize(builder.get(), rules=[written(tmp_path, WRONG)], validate=True)


# ---- what can't be run -----------------------------------------------------------------------------------------------


def test_what_tvm_can_not_build_is_said_in_a_note() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(R.permute_dims(builder.emit(R.nn.relu(builder.emit(R.permute_dims(x))))))
        return builder.emit(relax.call_pure_packed("nobody.knows", y, ty_args=relax.TensorType((4, 6), "float32")))

    plan = eqsat_layout.plan(program(body, (4, 6)), validate=True)
    assert plan.changed
    assert any(n.startswith("validation: the input module can't be built here") for n in plan.notes), plan.notes


def test_a_fault_in_our_own_build_is_not_taken_for_a_module_that_can_not_be_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("a slip")

    mod = program(chain(R.nn.relu), (4, 6))
    monkeypatch.setattr(results, "lower", broken)
    with pytest.raises(KeyError, match="a slip"):
        check_equal(mod, mod)


def test_a_program_that_fails_only_when_it_is_optimised_is_told_with_the_failure() -> None:
    asserted = program(chain(R.nn.relu, R.exp), (4, 6))
    name = asserted.get_global_var("main")
    function = asserted["main"]
    check = relax.BindingBlock([relax.VarBinding(relax.Var("_", relax.ObjectType()), _failing_call())])
    body = relax.SeqExpr([check, *function.body.blocks], function.body.body)
    broken = asserted.clone()
    broken.update_func(name, relax.Function(function.params, body, function.ret_ty, False, function.attrs))
    with pytest.raises(ValidationError, match="main: fails, but the input does not") as caught:
        check_equal(asserted, relax.transform.Normalize()(broken))
    assert caught.value.__cause__ is not None


def _failing_call() -> Any:
    return R.assert_op(relax.const(False, "bool"))


# ---- poison ----------------------------------------------------------------------------------------------------------


def test_a_plan_with_undef_padding_is_right_under_poison() -> None:
    mod = program(two_packed_convolutions, (1, 30, 4, 4), frozen=FROZEN)
    plan = eqsat_layout.plan(mod, validate=True)
    assert plan.changed
    assert not [note for note in plan.notes if "validation" in note]
    assert len(plan.transforms) == 2


def planned(mod: Any) -> tuple[Program, Region]:
    """The one region of ``mod``, before anything is emitted."""
    program = import_module(mod)
    commands = read_all(rule_files())
    (graph,) = program.graphs
    saturated = saturate(graph, program.signatures, commands)
    tensors = Tensors(saturated, program.signatures)
    selection = Selection(
        tensors, program.signatures, Roofline(), fusion_of(graph, program.signatures, tensors.of_node)
    )
    solution = solve(selection.problem)
    decoder = Decoder(selection, solution)
    written = fusion_of(graph, program.signatures, range(len(graph.nodes)))
    cost, rewrites = baseline(graph, program.signatures, Roofline(), written)
    return program, Region(graph, saturated, selection, solution, decoder, decoder.run(), cost, rewrites, written, True)


def without_zeros(steps: Steps) -> Steps:
    """The first copy that should pad with 0 pads with anything, which is 0 too as kernels are written."""
    spoiled = list(steps.steps)
    for i, step in enumerate(spoiled):
        if isinstance(step, Convert) and step.after.fill == 0.0:
            spoiled[i] = replace(step, after=step.after.with_fill(UNDEF))
            return replace(steps, steps=spoiled)
    raise AssertionError("no copy pads with 0")


def test_poison_finds_padding_that_is_relied_on_although_it_happens_to_be_zero() -> None:
    mod = program(lambda b, x: R.nn.conv2d(x, constant(30, 30, 1, 1)), (1, 30, 4, 4), frozen=FROZEN)
    known, region = planned(mod)
    assert validate(mod, emitted(mod, known, region), [region], known, target()) == []
    wrong = replace(region, steps=without_zeros(region.steps))
    check_equal(mod, emitted(mod, known, wrong))
    with pytest.raises(
        ValidationError, match=r"has \d+ elements that are no numbers .* with poison \(nan\).*nn.conv2d"
    ):
        validate(mod, emitted(mod, known, wrong), [wrong], known, target())


def emitted(mod: Any, known: Program, region: Region) -> Any:
    return emit_module(mod, [(region.graph, region.steps)], known.signatures, evaluate)


# ---- inputs ----------------------------------------------------------------------------------------------------------


@I.ir_module
class Everything:
    @rx.function
    def main(
        x: rx.Tensor(("n", "m"), "float32"),
        pair: rx.Tuple(rx.Tensor(("n * 2", 3), "int8"), rx.Tuple(rx.Tensor((), "bool"))),
        size: rx.Shape(["n", "k"]),
        y: rx.Tensor((4,), "bfloat16"),
        z: rx.Tensor(("k",), "uint8"),
    ) -> rx.Tensor(("n", "m"), "float32"):
        n, m, k = T.int64(), T.int64(), T.int64()  # noqa: F841
        return x


def test_inputs_for_tuples_shapes_composite_sizes_and_all_dtypes() -> None:
    x, pair, size, y, z = random_inputs(Everything["main"], 3, 0)
    assert x.shape == (3, 4)
    assert (pair[0].shape, str(pair[0].dtype)) == ((6, 3), "int8")
    assert (pair[1][0].shape, str(pair[1][0].dtype)) == ((), "bool")
    assert tuple(size) == (3, 5)
    assert (y.shape, str(y.dtype)) == ((4,), "bfloat16")
    assert z.shape == (5,)
    assert int(pair[0].numpy().max()) < 3
    again, *_ = random_inputs(Everything["main"], 3, 1)
    assert not np.array_equal(x.numpy(), again.numpy())


def test_a_function_that_can_not_be_run_is_said_in_a_note() -> None:
    def body(builder: Any, x: Any) -> Any:
        return R.permute_dims(builder.emit(R.nn.relu(builder.emit(R.permute_dims(x)))))

    mod = program(body, (4, 6))
    function = mod["main"]
    unknown = relax.Var("unknown", relax.ObjectType())
    params = [*function.params, unknown]
    mod.update_func(
        mod.get_global_var("main"), relax.Function(params, function.body, function.ret_ty, True, function.attrs)
    )
    with pytest.raises(NoInputsError, match="'unknown'"):
        random_inputs(mod["main"], 3)
    plan = eqsat_layout.plan(mod, validate=True)
    assert plan.changed
    assert [n for n in plan.notes if n.startswith("validation: function 'main' was not run") and "'unknown'" in n]


@pytest.mark.parametrize(
    ("dtype", "error", "is_seen"),
    [
        ("float32", 1e-5, False),
        ("float32", 1e-2, True),
        ("float16", 1e-3, False),
        ("float64", 1e-4, True),
        ("int32", 1, True),
    ],
)
def test_differences_are_judged_by_dtype(dtype: str, error: float, is_seen: bool) -> None:
    a = np.linspace(0, 2, 9).astype(dtype)
    b = (a + np.asarray(error)).astype(dtype)
    assert bool(difference(a, b)) == is_seen
    assert not difference(a, a)


def test_nan_where_the_input_has_none_is_a_difference() -> None:
    a = np.ones(3, "float32")
    assert "no numbers" in difference(a, np.array([1, np.nan, 1], "float32"))
    assert not difference(np.array([np.nan, np.inf], "float32"), np.array([np.nan, np.inf], "float32"))
    assert "instead of" in difference(a, np.ones(3, "float64"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_nan_of_a_narrow_float_is_no_difference(dtype: str) -> None:
    """Found by the program fuzzer: NumPy takes these for no floats, and NaN differed from NaN."""
    a = np.array([1, np.nan, -2], getattr(pytest.importorskip("ml_dtypes"), dtype))
    for compared in (difference, fuzzed_difference):
        assert not compared(a, a.copy())
        assert compared(a, a[::-1] * 0)


# ---- tolerances ------------------------------------------------------------------------------------------------------


def test_a_wrong_channel_of_small_numbers_is_seen() -> None:
    """The tolerance was a share of the largest element of all."""
    expected = np.random.default_rng(0).standard_normal((1, 8, 6, 6)).astype("float32")
    expected[:, 3] *= 3e-4
    got = expected.copy()
    assert difference(expected, got * np.float32(1 + 1e-6)) == ""
    got[:, 3] = got[:, 3, ::-1]
    assert "differs by" in difference(expected, got)


def test_sums_that_cancel_may_be_off_by_rounding() -> None:
    expected = np.ones((4, 8), "float32")
    expected[:, 2] = 0.0
    assert difference(expected, expected + np.float32(2e-6)) == ""
    assert difference(np.zeros((3, 3), "float32"), np.zeros((3, 3), "float32")) == ""
