"""What a user's flow callback answers is checked before anything is built on it."""

from __future__ import annotations

from typing import Any

import pytest
from tir.helpers import legal
from tvm import relax

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import Digit, Format, IndexMap
from eqsat_layout.tir.callbacks import CALLBACK_ATTRIBUTE, Direction, FlowAsker, FlowCallbacks

SHAPE = (4, 6)
TURNED = IndexMap.permutation(SHAPE, [1, 0])


def same_map(operands: Any, results: Any, direction: Direction, index: int, index_map: IndexMap) -> Any:
    """All tensors alike."""
    return [([index_map] * len(operands), [index_map] * len(results))]


def ask(callback: Any, direction: Direction = "backward") -> Any:
    asker = FlowAsker("my_op: flow callback 'mine'", callback, (SHAPE, SHAPE), (SHAPE,))
    return asker.ask(direction, 0, TURNED)


@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_a_good_answer_becomes_flows(direction: Direction) -> None:
    (flow,) = ask(same_map, direction)
    assert flow.operands == (Format.make(TURNED),) * 2
    assert flow.results == (Format.make(TURNED),)


def test_none_is_row_major_and_equal_answers_are_one() -> None:
    flows = ask(lambda *_: [((TURNED, None), [TURNED]), ((TURNED, IndexMap.identity(SHAPE)), (TURNED,))])
    assert [flow.operands[1] for flow in flows] == [Format.row_major(SHAPE)]


def test_no_answer() -> None:
    assert ask(lambda *_: None) == ()
    assert ask(lambda *_: []) == ()


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ([(TURNED, TURNED)], "a map for each of 2 operands"),
        ([([TURNED], [TURNED])], "a map for each of 2 operands"),
        ([([TURNED, TURNED], [])], "a map for each of 1 results"),
        ([[TURNED]], r"must give \(operand maps, result maps\)"),
        ([([TURNED, "NCHW"], [TURNED])], "an IndexMap or None for operand 1"),
        ([([TURNED, IndexMap.identity((6, 4))], [TURNED])], r"shape \(6, 4\) for operand 1 of shape \(4, 6\)"),
        ([([TURNED, TURNED], [None])], "was asked about"),
        ([([TURNED, IndexMap(SHAPE, ((Digit(0, 1, 4),), (Digit(0, 1, 4),)))], [TURNED])], "no bijection"),
    ],
)
def test_a_bad_answer_names_the_op_and_the_callback(answer: Any, complaint: str) -> None:
    with pytest.raises(LayoutError, match=complaint) as caught:
        ask(lambda *_: answer)
    assert str(caught.value).startswith("my_op: flow callback 'mine'")


def test_a_callback_that_raises() -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("no such axis")

    with pytest.raises(LayoutError, match="'mine' raised KeyError") as caught:
        ask(broken)
    assert isinstance(caught.value.__cause__, KeyError)


def test_callbacks_are_found_by_name_and_by_the_attribute() -> None:
    other: Any = lambda *_: None  # noqa: E731
    callbacks = FlowCallbacks({"relax.my_op": same_map, "special": other})
    func = legal(lambda x: relax.op.nn.relu(x), SHAPE)
    assert callbacks.named("relax.my_op", func) == ("relax.my_op", same_map)
    assert callbacks.named("another", func) is None
    assert callbacks.named("relax.my_op", func.with_attr(CALLBACK_ATTRIBUTE, "special")) == ("special", other)
    with pytest.raises(LayoutError, match="no flow callback is registered as 'typo'"):
        callbacks.named("relax.my_op", func.with_attr(CALLBACK_ATTRIBUTE, "typo"))
    with pytest.raises(LayoutError, match="not callable"):
        FlowCallbacks({"op": 3})  # type: ignore[dict-item]
