"""Implementations of convolutions and matrix products are offered, chosen by cost, and compute the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from programs import AVX2, assert_same, assert_untouched, constant, ops, program, transforms
from tvm import relax
from tvm.relax import op
from tvm.script import tirx as T

import eqsat_layout
from eqsat_layout.cost.model import Roofline
from eqsat_layout.cost.vectorise import heaviest
from eqsat_layout.errors import CandidateError
from eqsat_layout.graph.legalised_calls import legalise_calls
from eqsat_layout.implementations.blocked_formats import free_formats
from eqsat_layout.implementations.layouts import Blocking, layout_candidates
from eqsat_layout.maps import Format, IndexMap
from eqsat_layout.report.layout_names import LayoutNames
from eqsat_layout.tir.signature import analyse

# mypy: disable-error-code="no-untyped-def"

NAMES = LayoutNames({3: "NCW", 4: "NCHW"})


BLOCKS = Blocking((4, 8, 16))


def var(*shape: int) -> Any:
    return relax.Var("v", relax.TensorType(shape, "float32"))


def computation(call: Any) -> Any:
    found = analyse(legalise_calls([relax.BlockBuilder().normalize(call)])[0].func)
    assert found is not None
    return found


def chain(builder: Any, x: Any) -> Any:
    """Three convolutions, heavy enough for their layouts to matter."""
    for seed in range(3):
        y = builder.emit(op.nn.conv2d(x, constant(32, 32, 3, 3, seed=seed), padding=1))
        x = builder.emit(op.nn.relu(builder.emit(op.add(y, constant(1, 32, 1, 1, seed=seed)))))
    return x


# ---- what is offered -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "results"),
    [
        (op.nn.conv2d(var(1, 32, 8, 8), var(32, 32, 3, 3)), ["NHWC", "NCHW4c", "NCHW8c", "NCHW16c"]),
        (op.nn.conv2d(var(1, 3, 8, 8), var(32, 3, 3, 3)), ["NHWC", "NCHW4c", "NCHW8c", "NCHW16c"]),
        (op.nn.conv2d(var(1, 32, 8, 8), var(24, 32, 1, 1)), ["NHWC", "NCHW4c", "NCHW8c"]),
        (op.nn.conv2d(var(1, 32, 8, 8), var(32, 1, 3, 3), groups=32), ["NHWC", "NCHW4c", "NCHW8c", "NCHW16c"]),
        (op.nn.conv1d(var(1, 32, 8), var(32, 32, 3)), ["NWC", "NCW4c", "NCW8c", "NCW16c"]),
        (op.matmul(var(5, 32), var(32, 48)), ["row-major"]),
        (op.matmul(var(5, 32), var(32, 44)), ["row-major"]),
        (op.nn.relu(var(1, 32, 8, 8)), []),
        (op.nn.conv2d(var(1, 2, 8, 8, 4), var(2, 2, 3, 3, 4, 4), data_layout="NCHW4c", kernel_layout="OIHW4i4o"), []),
    ],
)
def test_layouts_are_read_off_the_block(call: Any, results: list[str]) -> None:
    found = layout_candidates(computation(call), BLOCKS)
    assert [NAMES(c.flow.results[0]) for c in found] == results


def test_weights_are_packed_for_vectors() -> None:
    (*_, packed) = layout_candidates(computation(op.nn.conv2d(var(1, 32, 8, 8), var(32, 32, 3, 3))), BLOCKS)
    assert packed.flow.operands[1].physical_shape == (2, 2, 3, 3, 16, 16)
    (matmul,) = layout_candidates(computation(op.matmul(var(5, 32), var(32, 48))), BLOCKS)
    assert matmul.flow.operands[1].physical_shape == (3, 32, 16)


def test_an_image_of_few_channels_is_read_as_it_is() -> None:
    """Its elements are broadcast wherever they are: NHWC took a transform of 36 to 78 us of 4 ms (MobileNetV4)."""
    conv = computation(op.nn.conv2d(var(1, 3, 8, 8), var(32, 3, 3, 3)))
    plain = [c for c in layout_candidates(conv, replace(BLOCKS, few=8)) if c.flow.operands[0].is_row_major]
    assert [NAMES(c.flow.results[0]) for c in plain] == ["NHWC", "NCHW4c", "NCHW8c", "NCHW16c"]
    many = computation(op.nn.conv2d(var(1, 8, 8, 8), var(32, 8, 3, 3)))
    assert len(layout_candidates(many, replace(BLOCKS, few=8))) == len(layout_candidates(many, BLOCKS))


def test_vectors_decide_what_a_layout_is_worth() -> None:
    conv = computation(op.nn.conv2d(var(1, 32, 14, 14), var(32, 32, 3, 3), padding=1))
    plain = [Format.row_major(conv.buffers[n].shape) for n in (*conv.operands, *conv.results)]

    def efficiency(operands: Sequence[Format], results: Sequence[Format]) -> float:
        heavy = heaviest(conv, operands, results)
        assert heavy is not None
        return heavy.efficiency(8)

    candidates = layout_candidates(conv, BLOCKS)
    shares = {NAMES(c.flow.results[0]): efficiency(c.flow.operands, c.flow.results) for c in candidates}
    written = efficiency(plain[:2], plain[2:])
    assert shares["NCHW16c"] == shares["NCHW8c"] == shares["NHWC"] == 1.0
    assert shares["NCHW4c"] == 0.5
    assert written < 0.7


@pytest.mark.parametrize(("classes", "chosen", "shape"), [(1000, "weights packed", (125, 256, 8)), (999, "dot", None)])
def test_one_row_reads_its_weights_in_one_piece(classes: int, chosen: str, shape: tuple[int, ...] | None) -> None:
    """1000 classes fill no blocks of 16, and read as they are every step of the product opens another page.

    Blocks of half a vector took 51 us where dot products took 73 (1000 by 1280), and 127 where 183, from memory.
    """
    matmul = computation(op.matmul(var(1, 256), var(256, classes)))
    names = {c.name: c for c in layout_candidates(matmul, Blocking((16,)))}
    assert names["dot products"].flow.operands[1].physical_shape == (classes, 256)
    assert shape is None or names["weights packed"].flow.operands[1].physical_shape == shape
    several = layout_candidates(computation(op.matmul(var(2, 256), var(256, classes))), Blocking((16,)))
    assert "dot products" not in {c.name for c in several}
    mod = program(lambda builder, x: builder.emit(op.matmul(x, constant(256, classes))), (1, 256))
    plan = eqsat_layout.plan(mod, {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2})
    assert any(chosen in choice.origin for choice in plan.explain().choices)
    assert_same(mod, plan.module)


def test_products_whose_columns_no_block_divides_have_whole_blocks_of_weights() -> None:
    """16 rows by 50257 columns, a vocabulary, took 65 ms as they are, and 13 in blocks of which the last is padded."""
    (packed,) = layout_candidates(computation(op.matmul(var(16, 256), var(256, 501))), Blocking((16,)))
    assert packed.flow.operands[1].physical_shape == (32, 256, 16)
    assert packed.flow.results[0].physical_shape == (16, 512)
    assert not layout_candidates(computation(op.matmul(var(16, 256), var(256, 34))), Blocking((16,)))  # 48: a waste

    def network(builder: Any, x: Any) -> Any:
        hidden = builder.emit(op.sigmoid(op.matmul(x, constant(256, 501))))  # no zeros in what the next one sums up
        return builder.emit(op.add(op.matmul(hidden, constant(501, 131)), constant(131)))

    mod = program(network, (16, 256))
    plan = eqsat_layout.plan(mod, {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2})
    assert any("whole blocks" in choice.origin for choice in plan.explain().choices)
    assert_same(mod, plan.module)


def test_rows_of_weights_that_are_read_once_count_as_slower_than_panels() -> None:
    """From memory, dot products took 1.05 to 1.4 times as long as panels of 16 columns."""

    def rows(count: int, name: str) -> frozenset[int]:
        matmul = computation(op.matmul(var(count, 512), var(512, 1024)))
        flow = next(c.flow for c in layout_candidates(matmul, Blocking((16,))) if c.name == name)
        heavy = heaviest(matmul, flow.operands, flow.results)
        assert heavy is not None
        return heavy.row_operands(16)

    assert rows(1, "dot products") == {1}
    assert rows(1, "weights packed") == rows(8, "weights packed") == frozenset()


# ---- what is chosen --------------------------------------------------------------------------------------------------


def test_heavy_convolutions_are_blocked_and_nothing_is_converted_in_between() -> None:
    mod = program(chain, (1, 32, 28, 28))
    plan = eqsat_layout.plan(mod, approx=False)
    convs = [c.result for c in plan.explain().choices if c.op == "nn.conv2d"]
    assert len(set(convs)) == 1
    assert convs[0] in ("NCHW8c", "NCHW16c", "NHWC")
    assert plan.is_optimal
    assert len(plan.transforms) <= 2
    assert plan.cost < plan.input_cost
    assert_same(mod, plan.module)


def test_no_transform_is_left_before_the_first_convolution() -> None:
    def first(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(x, constant(32, 3, 3, 3), strides=2, padding=1))))
        return builder.emit(op.mean(builder.emit(op.nn.conv2d(y, constant(32, 32, 3, 3), padding=1)), [2, 3]))

    mod = program(first, (1, 3, 64, 64))
    result = eqsat_layout.optimize(mod, AVX2, approx=False)
    assert transforms(result) == 0
    assert_same(mod, result)


def test_a_light_convolution_stays_as_it_is() -> None:
    mod = program(lambda b, x: op.nn.conv2d(x, constant(8, 8, 1, 1)), (1, 8, 4, 4))
    assert_untouched(mod, eqsat_layout.optimize(mod))


def test_nothing_is_offered_where_the_user_says_so() -> None:
    mod = program(chain, (1, 32, 28, 28))
    assert_untouched(mod, eqsat_layout.optimize(mod, candidates=False))


def test_winograd_is_chosen_where_rounding_may_differ_and_folded_into_the_weights() -> None:
    mod = program(chain, (1, 32, 28, 28))
    plan = eqsat_layout.plan(mod, AVX2)
    chosen = [c.op for c in plan.explain().choices]
    assert any("winograd_product" in name for name in chosen)
    assert not any("winograd_kernel" in name for name in chosen)  # constants are transformed when compiling
    assert plan.cost < eqsat_layout.plan(mod, AVX2, approx=False).cost
    assert_same(mod, plan.module)


def test_attention_needs_no_transforms() -> None:
    """Heads are split off by views, and the products read and write them as they lie."""

    def body(builder: Any, x: Any) -> Any:
        def heads(seed: int, axes: list[int]) -> Any:
            y = builder.emit(op.matmul(x, constant(96, 96, seed=seed)))
            return builder.emit(op.permute_dims(builder.emit(op.reshape(y, (1, 16, 3, 32))), axes))

        q, k, v = heads(1, [0, 2, 1, 3]), heads(2, [0, 2, 3, 1]), heads(3, [0, 2, 1, 3])
        scores = builder.emit(op.nn.softmax(builder.emit(op.matmul(q, k))))
        mixed = builder.emit(op.permute_dims(builder.emit(op.matmul(scores, v)), [0, 2, 1, 3]))
        return op.matmul(builder.emit(op.reshape(mixed, (1, 16, 96))), constant(96, 96, seed=4))

    mod = program(body, (1, 16, 96))
    plan = eqsat_layout.plan(mod, AVX2)
    assert (len(plan.input_transforms), len(plan.transforms)) == (4, 0)
    assert_same(mod, plan.module)


# ---- the user's own --------------------------------------------------------------------------------------------------


class Counts(Roofline):
    """Ops whose PrimFunc is called ``faster`` cost nothing, and packed layouts cost a fortune."""

    def run(self, op_: Any, operands: Any, results: Any, *, fused: Any = frozenset()) -> float:
        if op_.name.startswith("f0_replacement") or "faster" in op_.name:
            return 0.0
        return 1.0 if not all(f is None or f.is_row_major for f in (*operands, *results)) else 1e-3


@T.prim_func(private=True, s_tir=True)
def faster(a: T.Buffer((8, 12), "float32"), b: T.Buffer((12, 8), "float32"), c: T.Buffer((8, 8), "float32")):
    for i, j, k in T.grid(8, 8, 12):
        with T.sblock("c"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]


def test_an_op_is_replaced_by_a_primfunc() -> None:
    """What AlterOpImpl does."""
    mod = program(lambda b, x, y: op.nn.relu(b.emit(op.matmul(x, y))), (8, 12), (12, 8))
    optimized = eqsat_layout.optimize(mod, candidates={"relax.matmul": [faster]}, cost_model=Counts())
    assert [name for name in ops(optimized) if "replacement" in name]
    assert_same(mod, optimized)


def test_an_op_is_replaced_by_a_graph_whose_layouts_are_repaired() -> None:
    """What AlterOpLayout does: the kernel wants a transposed operand, and the transforms around it cancel."""

    def transposed(call: Any) -> Any:
        (x, y) = call.args
        builder = relax.BlockBuilder()
        params = [relax.Var("x", x.ty), relax.Var("y", y.ty)]
        with builder.function("main", params):
            with builder.dataflow():
                flipped = builder.emit(op.permute_dims(params[0], [1, 0]))
                doubled = builder.emit(op.permute_dims(flipped, [1, 0]))
                func = builder.add_func(faster, "faster")
                out = builder.emit_output(relax.call_tir(func, relax.Tuple([doubled, params[1]]), call.ty))
            builder.emit_func_output(out)
        return [builder.get()]

    mod = program(lambda b, x, y: op.nn.relu(b.emit(op.matmul(x, y))), (8, 12), (12, 8))
    optimized = eqsat_layout.optimize(mod, candidates={"relax.matmul": transposed}, cost_model=Counts())
    assert transforms(optimized) == 0
    assert any("faster" in name for name in ops(optimized))
    assert_same(mod, optimized)


def test_layouts_of_the_user_are_candidates() -> None:
    mod = program(chain, (1, 32, 28, 28))
    plan = eqsat_layout.plan(mod, candidates={"relax.nn.conv2d": [["NCHW32c", "OIHW32i32o"]]}, approx=False)
    assert_same(mod, plan.module)
    with pytest.raises(CandidateError, match=r"relax.nn.conv2d"):
        eqsat_layout.plan(mod, candidates={"relax.nn.conv2d": [["NCHW32q", "OIHW"]]})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["relax.matmul"], "dictionary"),
        ({"relax.matmul": [1]}, "is no list of layout names"),
        ({"relax.matmul": lambda call: 1 // 0}, "ZeroDivisionError"),
        ({"relax.matmul": [tvm.IRModule()]}, "no function 'main'"),
        ({"relax.nn.relu": [faster]}, "no function of the op's operands"),
    ],
)
def test_what_is_no_candidate_is_refused_by_name(given: Any, says: str) -> None:
    mod = program(lambda b, x, y: op.nn.relu(b.emit(op.matmul(x, y))), (8, 12), (12, 8))
    with pytest.raises(CandidateError, match=says):
        eqsat_layout.plan(mod, candidates=given)


def test_candidates_for_what_is_not_there_are_noted() -> None:
    mod = program(lambda b, x: op.nn.relu(x), (4, 6))
    (note,) = eqsat_layout.plan(mod, candidates={"relax.nn.conv2d": [faster]}).notes
    assert "relax.nn.conv2d" in note


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(TypeError, match="desired_layout"):
        eqsat_layout.plan(program(lambda b, x: op.nn.relu(x), (4, 6)), desired_layout={})  # type: ignore[call-arg]


# ---- desired layouts -------------------------------------------------------------------------------------------------


def test_desired_layouts_may_be_callbacks() -> None:
    """By op, and as TVM's ``layout_cb``: one for all ops."""
    mod = program(chain, (1, 32, 8, 8))
    asked: list[str] = []

    def by_call(call: Any) -> Any:
        asked.append(str(call.op.name))
        return {"relax.nn.conv2d": ["NHWC", "HWIO"]} if call.op.name == "relax.nn.conv2d" else None

    for desired in ({"relax.nn.conv2d": lambda call: ["NHWC", "HWIO"]}, by_call):
        plan = eqsat_layout.plan(mod, desired_layouts=desired)
        assert {c.result for c in plan.explain().choices if c.op == "nn.conv2d"} == {"NHWC"}
        assert_same(mod, plan.module)
    assert {"relax.nn.relu", "relax.nn.conv2d"} <= set(asked)


def test_what_can_not_be_had_or_costs_more_is_said() -> None:
    mod = program(chain, (1, 32, 8, 8))
    notes = eqsat_layout.plan(
        mod, desired_layouts={"relax.nn.relu": ["NHWC"], "relax.nn.conv2d": ["NHWC", "OHWI"]}
    ).notes
    assert any("relax.nn.relu" in note and "stays as it is" in note for note in notes)
    assert any("the desired layouts cost" in note for note in notes)


def test_constants_are_numbers_of_the_right_layout() -> None:
    """The weights of the chosen implementation, as they lie in the module."""
    mod = program(chain, (1, 32, 28, 28))
    module = eqsat_layout.optimize(mod, desired_layouts={"relax.nn.conv2d": ["NCHW16c", "OIHW16i16o"]})
    conv = next(b.value for b in module["main"].body.blocks[0].bindings if "conv2d" in str(b.value))
    operands = conv.args[1].fields if conv.op.name == "relax.call_tir" else conv.args
    weight = next(a for a in operands if isinstance(a, tvm.ir.GenericConst)).value.numpy()
    expected = constant(32, 32, 3, 3, seed=0).value.numpy().reshape(2, 16, 2, 16, 3, 3).transpose(0, 2, 4, 5, 3, 1)
    np.testing.assert_array_equal(weight, expected)


@pytest.mark.parametrize("rows", [16, 196])
def test_weights_of_a_few_rows_are_packed(rows: int) -> None:
    """Tiles read strips of weights as they were written: each step waited for memory (773 us instead of 112)."""

    def body(builder: Any, x: Any) -> Any:
        return builder.emit(op.matmul(x, constant(384, 768)))

    plan = eqsat_layout.plan(program(body, (1, rows, 384)), AVX2)
    assert "768, 384" not in plan.module.script()
    assert plan.input_cost > 1.3 * plan.cost


@pytest.mark.parametrize(("rows", "copies"), [(4, 0), (8, 0), (64, 1)])
def test_few_rows_read_a_matrix_that_is_an_input_as_it_lies(rows: int, copies: int) -> None:
    """A copy of it in panels was made in each run: 8 rows by 1280 x 1000 took 1.5 times as long."""

    def body(builder: Any, x: Any, w: Any) -> Any:
        return builder.emit(op.matmul(x, w))

    plan = eqsat_layout.plan(program(body, (rows, 1280), (1280, 1000)), AVX2)
    assert len(plan.transforms) == copies


def test_operands_of_attention_are_not_taken_for_cold_weights() -> None:
    """They were made just before: a copy would cost more than strips of them."""
    scores = computation(op.matmul(var(4, 49, 32), var(4, 32, 49)))
    formats = [Format.row_major(shape) for shape in ((4, 49, 32), (4, 32, 49))]
    heavy = heaviest(scores, formats, [Format.row_major((4, 49, 49))])
    assert heavy is not None
    assert not heavy.stalling_operands


def test_taps_of_a_window_are_in_one_format():
    """Each of nine taps was asked for in each format that one of them had: a convolution of 18 numbers took 556 s."""
    orders = (0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 2, 0)
    formats = [Format.make(IndexMap.permutation((1, 3, 3, 1), axes)) for axes in orders]
    result = [Format.row_major((1, 3, 7, 5))]
    found = list(free_formats([*[formats] * 9, result], 2, formats[1]))
    assert found == [(*[formats[1]] * 9, *result)]
    few = list(free_formats([formats, formats, result], 1, formats[1]))
    assert few == [(one, formats[1], *result) for one in formats]


def test_a_convolution_of_few_numbers_is_planned():
    mod = program(lambda b, x: b.emit(op.nn.conv2d(x, constant(3, 2, 3, 3), padding=3)), (1, 2, 3, 1))
    assert eqsat_layout.plan(mod, AVX2).gap == 0


def test_data_of_one_element_have_candidates():
    """The data's last digit was asked for, and there is none: planning ended with an IndexError."""
    mod = program(lambda b, x: b.emit(op.nn.conv1d(x, constant(4, 1, 3), padding=[0, 2])), (1, 1, 1))
    assert eqsat_layout.plan(mod, AVX2).gap == 0
