"""Calls drawn from the schemas of ops: attributes are varied on the same operands, words come from documentation."""

from __future__ import annotations

import random

import pytest
from tvm import relax

from eqsat_layout.errors import Refused
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.op_calls import make_call
from eqsat_layout.soundness.rules.call_search import CallSearch
from eqsat_layout.soundness.rules.known_ops import unusable
from eqsat_layout.soundness.rules.ops import usual_call, why_never_run
from eqsat_layout.soundness.rules.schema import draw_calls, drawn, vary


@pytest.mark.parametrize(
    "op",
    [
        "grad.avg_pool2d_backward",  # few windows go with the shape of the gradient
        "image.affine_grid",
        "nn.attention",  # all attributes may be left out
        "scatter_nd",  # its words are not quoted
        "gather_nd",  # on most operands there is one choice only
    ],
)
def test_attributes_are_varied_on_the_same_operands(op: str) -> None:
    usual = usual_call(f"relax.{op}")
    assert usual is not None
    (other,) = vary(usual, 1, random.Random(0))
    assert other.operands == usual.operands
    assert other.attributes != usual.attributes
    assert other.is_computable


def test_an_operand_that_may_be_left_out_is_drawn_too() -> None:
    """Weights of a loss were an attribute, so no rule about three operands had an instance."""
    call = usual_call("relax.nn.nll_loss", 3)
    assert call is not None
    assert len(call.operands) == 3
    assert call.is_computable
    assert vary(call, 1, random.Random(0))


def test_an_operand_may_have_another_extent_in_one_place() -> None:
    """As parts have that are joined: halves only were found."""
    rng = random.Random(0)
    shapes = {drawn("relax.concat", [TensorType((2, 3), "float32")], rng).operands[1].shape for _ in range(200)}
    assert {(2, 1), (1, 3)} <= shapes


def test_modes_that_documentation_lists_are_drawn() -> None:
    rng = random.Random(0)
    modes = {
        call.attributes.partition("mode=")[2]
        for _ in range(12)
        for call in draw_calls("relax.take", TensorType((2, 3), "float32"), 4, rng)
    }
    assert {"fast", "wrap", "clip"} <= modes


def test_an_op_that_is_but_a_view_is_not_sought_for_long() -> None:
    """Nine seconds of ten went into the search for a reshape that is none."""
    usual_call.cache_clear()
    looked_at = unusable.cache_info().misses
    assert usual_call("relax.reshape") is not None
    assert unusable.cache_info().misses - looked_at <= 50


def test_equal_calls_are_one() -> None:
    """So that type inference and builds are done once."""
    ty = TensorType((2, 2), "float32")
    first, second = (drawn("relax.nn.relu", (ty,), random.Random(0), exact=True) for _ in range(2))
    assert first is second


def test_the_first_operand_broadcasts_too() -> None:
    rng = random.Random(0)
    calls = (drawn("relax.add", (TensorType((3, 1), "float32"),), rng) for _ in range(200))
    assert any(c.made is not None and c.made.shape != c.operands[0].shape for c in calls)


def test_subscripts_are_drawn_for_two_operands() -> None:
    """No call of ``einsum`` was found: its operands were taken for one tensor, and its subscripts for a number."""
    rng = random.Random(0)
    calls = [drawn("relax.einsum", (TensorType((2, 3), "float32"),), rng) for _ in range(60)]
    found = {call.attributes for call in calls if call.is_computable}
    assert len(found) > 20
    assert all(len(call.operands) == 2 for call in calls)


@pytest.mark.parametrize(
    ("op", "shape", "attribute"),
    [("relax.image.resize3d", (1, 1, 2, 2, 2), "method"), ("relax.grad.nll_loss_backward", (), "reduction")],
)
def test_words_that_another_op_documents_are_drawn(op: str, shape: tuple[int, ...], attribute: str) -> None:
    """They were as by default, as the op's own documentation does not name them."""
    rng = random.Random(0)
    calls = [drawn(op, (TensorType(shape, "float32"),), rng) for _ in range(60)]
    assert len({call.values[attribute] for call in calls}) >= 3


def test_an_op_that_can_not_be_run_is_not_sought_for_long() -> None:
    """All was tried 1 800 times, for more than half a minute: every call is refused for the one reason."""
    search = CallSearch("relax.add", random.Random(0))
    assert search.run(lambda call: "nobody runs it") is None
    assert search.reasons.total() <= 100


def test_an_op_that_tvm_has_no_kernel_of_is_not_sought_for_long() -> None:
    """All was tried 64 000 times: no call is legalised, for the one reason."""
    search = CallSearch("relax.nn.pixel_shuffle", random.Random(0))
    assert search.run(unusable) is None
    assert search.is_vain


@pytest.mark.parametrize(
    ("op", "operands"),
    [
        ("multinomial_from_uniform", [((2, 3), "float32"), ((2, 1), "float32"), ((2, 1), "int64")]),
        ("vision.non_max_suppression", [((2, 3, 6), "float32"), ((2,), "int32"), ((2, 3), "int32")]),
    ],
)
def test_ops_that_sort_and_sum_are_run(op: str, operands: list[tuple[tuple[int, ...], str]]) -> None:
    """Nothing ran them: they are several PrimFuncs, some of which TVM makes for the target, or call its own sorts."""
    types = [TensorType(shape, dtype) for shape, dtype in operands]
    calls = [drawn(f"relax.{op}", types, random.Random(seed), exact=True) for seed in range(40)]
    assert "" in [unusable(call) for call in calls if call.is_computable]


def test_why_an_op_is_never_run_is_what_tvm_says_of_a_typed_call() -> None:
    assert "not supported" in why_never_run("relax.nn.attention_var_len")


def test_what_rules_have_no_words_for_is_said() -> None:
    """Of a layout transform an assertion of TVM's about negative numbers was shown, after twenty seconds."""
    assert "'index_map' is code" in why_never_run("relax.layout_transform")
    with pytest.raises(Refused, match="'index_map' is code"):
        make_call(
            "relax.layout_transform", [relax.Var("x", relax.TensorType((2, 3), "float32"))], {"index_map": [1, 0]}
        )


def test_shapes_are_like_that_of_the_first_operand() -> None:
    """Of the shapes that a tensor was broadcast to one of twenty was another one that it has: a wrong sum over such an
    axis was called right with one of three seeds."""
    rng, first = random.Random(0), TensorType((1, 3), "int32")
    calls = [drawn("relax.broadcast_to", (first,), rng, exact=True) for _ in range(200)]
    wider = [call for call in calls if isinstance(call.made, TensorType) and call.made != first]
    assert len(wider) > 25
