"""Flow callbacks of the user, end to end: they replace the analysis, are checked, and are told apart by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from programs import assert_same_plan, assert_untouched, constant, ops, program, transforms
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import eqsat_layout
from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import IndexMap
from eqsat_layout.tir.callbacks import CALLBACK_ATTRIBUTE

# mypy: disable-error-code="no-untyped-def"

NHWC = (0, 2, 3, 1)


def conv_in_nhwc(operands: Any, results: Any, direction: str, index: int, index_map: IndexMap) -> Any:
    """Data and result may both be NHWC; the weight is HWIO, so that its vectors are contiguous."""
    if index_map.permuted_axes != NHWC or (direction == "forward" and index != 0):
        return None
    weight = IndexMap.permutation(operands[1], (2, 3, 1, 0))
    return [([IndexMap.permutation(operands[0], NHWC), weight], [IndexMap.permutation(results[0], NHWC)])]


def all_alike(operands: Any, results: Any, direction: str, index: int, index_map: IndexMap) -> Any:
    """Tensors of one shape, all in one layout."""
    return [([index_map] * len(operands), [index_map] * len(results))]


def nothing(*_: Any) -> None:
    """No layouts go through."""


def conv_between_transposes() -> Any:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.permute_dims(x, [0, 3, 1, 2]))
        y = builder.emit(op.nn.conv2d(y, constant(8, 4, 3, 3), padding=1))
        return builder.emit(op.permute_dims(y, [0, 2, 3, 1]))

    return program(body, (2, 12, 10, 4))


def relu_between_transposes(function: Callable[[Any], Any] = op.nn.relu) -> Any:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(function(builder.emit(op.permute_dims(x, [1, 0]))))
        return builder.emit(op.permute_dims(y, [1, 0]))

    return program(body, (4, 6))


# ---- what a callback says is done --------------------------------------------------------------------------------


def test_a_conv_takes_the_layout_that_a_callback_lets_through() -> None:
    mod = conv_between_transposes()
    # nothing flows through a contraction by itself
    assert_untouched(mod, eqsat_layout.optimize(mod, candidates=False))
    plan = eqsat_layout.plan(mod, flows={"relax.nn.conv2d": conv_in_nhwc}, validate=True)
    assert transforms(plan.module) == 0
    assert len(ops(plan.module)) == 1
    assert plan.notes == ()
    assert plan.cost < plan.input_cost
    assert_same_plan(mod, plan.module)


def test_a_weight_follows_its_callback_before_the_program_runs() -> None:
    mod = conv_between_transposes()
    optimized = eqsat_layout.optimize(mod, flows={"relax.nn.conv2d": conv_in_nhwc})
    assert len(ops(optimized)) == 1
    conv = optimized["main"].body.blocks[0].bindings[0].value
    data, weight = conv.args[1].fields if conv.op.name == "relax.call_tir" else conv.args
    assert [tuple(map(int, x.ty.shape)) for x in (data, weight)] == [(2, 12, 10, 4), (3, 3, 4, 8)]
    assert isinstance(weight, tvm.ir.GenericConst)
    assert_same_plan(mod, optimized)


def test_a_matmul_flows_by_callback() -> None:
    def transposed_result(operands: Any, results: Any, direction: str, index: int, index_map: IndexMap) -> Any:
        return [([None, None], [index_map])] if direction == "backward" else None

    def body(builder: Any, x: Any, y: Any) -> Any:
        return builder.emit(op.permute_dims(builder.emit(op.matmul(x, y)), [1, 0]))

    mod = program(body, (5, 6), (6, 7))
    optimized = eqsat_layout.optimize(mod, flows={"relax.matmul": transposed_result})
    assert transforms(optimized) == 0
    assert_same_plan(mod, optimized)


def test_a_callback_that_returns_none_stops_what_the_analysis_lets_through() -> None:
    mod = relu_between_transposes()
    assert ops(eqsat_layout.optimize(mod)) == ["nn.relu"]
    plan = eqsat_layout.plan(mod, flows={"relax.nn.relu": nothing})
    assert_untouched(mod, plan.module)
    assert plan.notes == ()
    assert {r.reason for r in plan.refusals()} == {"its flow callback 'relax.nn.relu' gives none"}


def test_buffers_between_the_blocks_follow_what_the_callback_says() -> None:
    mod = relu_between_transposes(lambda x: op.nn.softmax(x, axis=0))
    optimized = eqsat_layout.optimize(mod, flows={"relax.nn.softmax": all_alike})
    assert transforms(optimized) == 0
    assert_same_plan(mod, optimized)


def test_a_callback_is_asked_backward_from_results_and_forward_from_operands() -> None:
    asked = set()

    def recorded(operands: Any, results: Any, direction: str, index: int, index_map: IndexMap) -> Any:
        asked.add((operands, results, direction, index, index_map.permuted_axes))
        return all_alike(operands, results, direction, index, index_map)

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.permute_dims(builder.emit(op.nn.relu(x)), [1, 0]))
        return builder.emit(op.permute_dims(builder.emit(op.nn.relu(y)), [1, 0]))

    mod = program(body, (4, 6))
    optimized = eqsat_layout.optimize(mod, flows={"relax.nn.relu": recorded})
    assert ops(optimized) == ["nn.relu", "nn.relu"]
    assert_same_plan(mod, optimized)
    shapes = [((shape,), (shape,)) for shape in ((4, 6), (6, 4))]
    assert asked == {(*shape, side, 0, (1, 0)) for shape in shapes for side in ("backward", "forward")}


def test_the_pass_and_the_executable_take_flows_too() -> None:
    mod = conv_between_transposes()
    flows = {"relax.nn.conv2d": conv_in_nhwc}
    optimized = tvm.transform.Sequential([eqsat_layout.OptimizeLayout(flows=flows)])(mod)
    assert transforms(optimized) == 0
    assert_same_plan(mod, optimized)
    with pytest.raises(LayoutError, match=r"callback 'relax\.nn\.conv2d' raised ZeroDivisionError"):
        eqsat_layout.compile(mod, "llvm", flows={"relax.nn.conv2d": lambda *_: 1 // 0})


# ---- what a callback may not say ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lambda m: [([m, m], [m])], "a map for each of 1 operands"),
        (lambda m: [([m], [])], "a map for each of 1 results"),
        (lambda m: [([IndexMap.identity((7, 4))], [m])], r"shape \(7, 4\) for operand 0 of shape \(6, 4\)"),
        (lambda m: [([IndexMap(m.shape, (m.dims[0], m.dims[0]))], [m])], "no bijection for operand 0"),
        (lambda m: [([None], [None])], "was asked about"),
        (lambda m: 3, "raised TypeError"),
    ],
)
def test_a_lie_names_the_op_and_the_callback(answer: Callable[[IndexMap], Any], complaint: str) -> None:
    mod = relu_between_transposes()
    with pytest.raises(LayoutError, match=complaint) as caught:
        eqsat_layout.optimize(mod, flows={"relax.nn.relu": lambda *question: answer(question[-1])})
    assert str(caught.value).startswith("relax.nn.relu: flow callback 'relax.nn.relu'")


def test_a_callback_that_raises_is_named_with_its_error() -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("no such axis")

    with pytest.raises(
        LayoutError, match=r"relax\.nn\.relu: flow callback 'relax\.nn\.relu' raised KeyError"
    ) as caught:
        eqsat_layout.optimize(relu_between_transposes(), flows={"relax.nn.relu": broken})
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("flows", [{"relax.nn.relu": 3}, [all_alike]])
def test_what_is_no_callback_is_refused(flows: Any) -> None:
    with pytest.raises(LayoutError, match=r"not callable|must be a dictionary"):
        eqsat_layout.optimize(relu_between_transposes(), flows=flows)


# ---- callbacks that can't be followed ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "frozen", "reason"),
    [
        ("relax.permute_dims", None, "is ignored, because it only views, pads or crops"),
        ("relax.nn.conv2d", {"relax.nn.conv2d": ["NHWC", "OIHW"]}, "is ignored, because it is frozen"),
        ("relax.nn.cnov2d", None, "no op that is read goes by this name"),
    ],
)
def test_a_callback_that_is_not_needed_is_noted(name: str, frozen: Any, reason: str) -> None:
    mod = conv_between_transposes()
    plan = eqsat_layout.plan(mod, desired_layouts=frozen, flows={name: lambda *_: 1 // 0})
    (note,) = [note for note in plan.notes if "callback" in note]
    assert name in note
    assert reason in note
    assert_same_plan(mod, plan.module)


def primfunc_between_transposes(attribute: str | None = None, function: str = "scale") -> Any:
    """``function`` is one of three: ``scale`` is pointwise, ``spin`` is a loop of unknown length, so opaque, and
    ``turn`` transposes what it reads before it scales."""

    @I.ir_module
    class Module:
        @T.prim_func(private=True, s_tir=True)
        def scale(a: T.Buffer((6, 4), "float32"), b: T.Buffer((6, 4), "float32")):
            for i, j in T.grid(6, 4):
                with T.sblock("b"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    b[vi, vj] = a[vi, vj] * T.float32(2)

        @T.prim_func(private=True, s_tir=True)
        def spin(a: T.Buffer((6, 4), "float32"), b: T.Buffer((6, 4), "float32")):
            for i in range(6):
                for j in range(4):
                    b[i, j] = a[i, j] * T.float32(2)

        @T.prim_func(private=True, s_tir=True)
        def turn(a: T.Buffer((6, 4), "float32"), b: T.Buffer((6, 4), "float32")):
            c = T.sblock_alloc_buffer((4, 6))
            for i, j in T.grid(4, 6):
                with T.sblock("c"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    c[vi, vj] = a[vj, vi]
            for i, j in T.grid(6, 4):
                with T.sblock("b"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    b[vi, vj] = c[vj, vi] * T.float32(2)

    func = Module[function]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([4, 6], "float32"))
    with builder.function("main", [x]):
        callee = builder.add_func(
            func if attribute is None else func.with_attr(CALLBACK_ATTRIBUTE, attribute), function
        )
        with builder.dataflow():
            y = builder.emit(op.permute_dims(x, [1, 0]))
            y = builder.emit(R.call_tir(callee, (y,), out_ty=R.Tensor((6, 4), "float32")))
            out = builder.emit_output(op.permute_dims(y, [1, 0]))
        builder.emit_func_output(out)
    return builder.finalize()


@pytest.mark.parametrize("attribute", [None, "mine"])
def test_a_callback_for_an_op_that_is_not_understood_is_noted_and_ignored(attribute: str | None) -> None:
    mod = primfunc_between_transposes(attribute, "spin")
    name = attribute or "spin"
    plan = eqsat_layout.plan(mod, flows={name: lambda *_: 1 // 0})
    assert plan.notes == (
        f"spin: its flow callback {name!r} is ignored, because its TIR is not understood, so it can't be re-laid-out",
    )
    assert_untouched(mod, plan.module)


# ---- names of PrimFuncs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attribute", "name"),
    [("mine", "mine"), (None, "scale"), (None, "call_tir:scale")],
    ids=["attribute", "name", "rule"],
)
def test_a_primfunc_is_known_by_its_attribute_or_else_by_its_name(attribute: str | None, name: str) -> None:
    mod = primfunc_between_transposes(attribute)
    optimized = eqsat_layout.optimize(mod, flows={name: all_alike})
    assert transforms(optimized) == 0
    assert_same_plan(mod, optimized)
    stopped = eqsat_layout.plan(mod, flows={name: nothing})
    assert_untouched(mod, stopped.module)
    assert stopped.notes == ()


def test_the_attribute_comes_before_the_name() -> None:
    mod = primfunc_between_transposes("mine")
    assert_untouched(mod, eqsat_layout.optimize(mod, flows={"mine": nothing, "scale": all_alike}))


def test_an_attribute_that_names_no_callback() -> None:
    mod = primfunc_between_transposes("typo")
    with pytest.raises(LayoutError, match="scale: no flow callback is registered as 'typo'"):
        eqsat_layout.optimize(mod, flows={"mine": all_alike})
    plan = eqsat_layout.plan(mod)
    assert transforms(plan.module) == 0  # its TIR says how layouts flow
    assert plan.notes == (
        "scale: the flow callback 'typo', which its PrimFunc names, is ignored, because no flows are given",
    )


def test_what_is_re_laid_out_no_longer_names_the_callback() -> None:
    mod = primfunc_between_transposes("mine")
    optimized = eqsat_layout.optimize(mod, flows={"mine": all_alike})
    (name,) = ops(optimized)
    assert CALLBACK_ATTRIBUTE not in (optimized[name].attrs or {})
    assert_untouched(optimized, eqsat_layout.optimize(optimized, flows={"mine": lambda *_: 1 // 0}))


def test_a_primfunc_with_a_callback_is_not_taken_apart() -> None:
    """Its own transpose would be lifted out, and the callback be asked about a function that the user never wrote."""
    seen = set()

    def recorded(operands: Any, results: Any, direction: str, index: int, index_map: IndexMap) -> Any:
        seen.add((operands, results))
        return all_alike(operands, results, direction, index, index_map)

    mod = primfunc_between_transposes(function="turn")
    optimized = eqsat_layout.optimize(mod, flows={"turn": recorded})
    assert seen == {(((6, 4),), ((6, 4),))}
    assert transforms(optimized) == 0
    assert_same_plan(mod, optimized)
