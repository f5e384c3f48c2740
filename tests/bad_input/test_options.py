"""Options of a plan that make no sense, and callbacks of the user's that fail: one row for each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import tvm
from bad_input.rows import Row, check, options
from programs import constant, program
from tvm.relax import op as R

from eqsat_layout.cost.model import Roofline
from eqsat_layout.egraph.limits import Limits
from eqsat_layout.errors import CandidateError, CostError, EqsatError, LayoutError, RuleError, TargetError
from eqsat_layout.maps import Digit, IndexMap


def costing(value: Any) -> Roofline:
    class Costs(Roofline):
        def run(self, *args: Any, **kwargs: Any) -> float:
            if isinstance(value, Exception):
                raise value
            return value  # type: ignore[no-any-return]

    return Costs()


def layouts(name: str, names: Sequence[Any], comes: Any, says: Sequence[str]) -> Row:
    return Row(name, options(desired_layouts={"relax.nn.conv2d": list(names)}), comes, says, mod=one_convolution)


def frozen_to(*names: str, op: str = "relax.nn.conv2d") -> Any:
    body = lambda b, x: R.nn.conv2d(x, constant(8, 8, 1, 1))  # noqa: E731
    return program(body, (1, 8, 4, 4), frozen={op: list(names)})


def one_convolution() -> Any:
    return program(lambda b, x: R.nn.conv2d(x, constant(8, 8, 1, 1)), (1, 8, 4, 4))


def flows(callback: Any) -> Callable[[Path], dict[str, Any]]:
    return options(flows={"relax.nn.relu": callback})


def raising(*_: Any) -> Any:
    raise ZeroDivisionError("oops")


def endless(operands: Any, results: Any, direction: str, index: int, index_map: Any) -> Iterator[Any]:
    while True:
        yield ((index_map,), (index_map,))


def squashing(operands: Any, results: Any, direction: str, index: int, index_map: Any) -> Any:
    squashed = IndexMap(index_map.shape, ((Digit(0, 1, 1),),))
    pair = (index_map, squashed) if direction == "forward" else (squashed, index_map)
    return [((pair[0],), (pair[1],))]


FLOW = "flow callback 'relax.nn.relu'"


OPTION_ROWS = [
    Row("an option that there is not", options(layouts={}), TypeError, ["layouts"]),
    Row("a target of 5 000 letters", options(target="q" * 5000), TargetError, ["(5,003 characters)"]),
    layouts(
        "a block of 5 000 digits", [f"N{'1' * 5000}cHW"], LayoutError, ["conv2d", "malformed", "(5,007 characters)"]
    ),
    Row("a rule file of 5 000 letters", options(rules=["q" * 5000]), RuleError, ["qqq", "too long"]),
    Row("an unknown target", options(target="abacus"), TargetError, ["abacus", "'llvm'"]),
    Row("a switch that is a text", options(approx="no"), EqsatError, ["approx", "'no'"]),
    Row("a validation that is a text", options(validate="off"), EqsatError, ["validate", "'off'"]),
    Row("notes that are a text", options(notes="all"), EqsatError, ["notes", "'all'"]),
    Row("a target of a wrong kind", options(target=7), TargetError, ["int"]),
    Row("a target dictionary without a kind", options(target={"mcpu": "x"}), TargetError, ["kind"]),
    layouts("a layout that is none", ["NHQQ", "OHWI"], LayoutError, ["NHQQ"]),
    layouts("a layout of another rank", ["NC", "OI"], None, ["relax.nn.conv2d", "stays as it is"]),
    layouts("too few layouts", [], LayoutError, ["conv2d"]),
    layouts("too many layouts", ["NHWC", "OHWI", "NHWC", "NHWC", "NHWC"], None, ["relax.nn.conv2d", "stays as it is"]),
    layouts("a layout that is a number", [4, 5], LayoutError, ["conv2d"]),
    layouts("a layout of block 0", ["NCHW0c", "OIHW"], LayoutError, ["NCHW0c"]),
    Row("layouts that are a text", options(desired_layouts="NHWC"), LayoutError, ["NHWC"]),
    Row("layouts of an op that is not there", options(desired_layouts={"relax.nn.conv9d": ["NHWC"]}), None, ["conv9d"]),
    Row("a frozen op of another rank", options(), LayoutError, ["conv2d", "NC"], mod=lambda: frozen_to("NC", "OI")),
    Row(
        "a frozen op of too many layouts",
        options(),
        LayoutError,
        ["conv2d", "5 layouts"],
        mod=lambda: frozen_to(*["NHWC"] * 5),
    ),
    Row(
        "a frozen op that is not bound",
        options(),
        LayoutError,
        ["lv99"],
        mod=lambda: frozen_to("NHWC", "OHWI", op="lv99"),
    ),
    Row("candidates that are a number", options(candidates=3), CandidateError, ["3"]),
    Row(
        "a candidate that is a number",
        options(candidates={"relax.nn.relu": [3]}),
        CandidateError,
        ["relax.nn.relu", "3"],
    ),
    Row(
        "a candidate of another shape",
        options(candidates={"relax.nn.relu": [["NCHW5c", "NCHW"]]}),
        CandidateError,
        ["relax.nn.relu"],
    ),
    Row(
        "a candidate module without main",
        options(candidates={"relax.nn.relu": [tvm.IRModule({})]}),
        CandidateError,
        ["main"],
    ),
    Row(
        "a candidate callback that raises",
        options(candidates={"relax.nn.relu": raising}),
        CandidateError,
        ["relax.nn.relu", "oops"],
    ),
    Row(
        "candidates without end",
        options(candidates={"relax.nn.relu": lambda call: itertools.repeat(["NHWC", "NHWC"])}),
        CandidateError,
        ["relax.nn.relu", "more than"],
    ),
    Row("candidates for nothing", options(candidates={"relax.nn.conv2d": [["NCHW"]]}), None, ["nothing to replace"]),
    Row(
        "candidates for an op that there is not",
        options(candidates={"relax.nothing": [["NCHW"]]}),
        CandidateError,
        ["relax.nothing", "no op"],
    ),
    Row(
        "candidates for a typo",
        options(candidates={"relax.nn.rely": [["NCHW"]]}),
        CandidateError,
        ["relax.nn.rely", "did you mean 'relax.nn.relu'?"],
    ),
    Row("flows that are a list", options(flows=[raising]), LayoutError, ["flows"]),
    Row("a flow that is no function", flows(3), LayoutError, ["relax.nn.relu"]),
    Row("a flow that raises", flows(raising), LayoutError, [FLOW, "oops"]),
    Row("flows without end", flows(endless), LayoutError, [FLOW, "more than"]),
    Row("a flow of a number", flows(lambda *_: 3), LayoutError, [FLOW]),
    Row("a flow of too few maps", flows(lambda *_: [((), ())]), LayoutError, [FLOW, "for each of 1"]),
    Row(
        "a flow of another map than asked for",
        flows(lambda o, r, *_: [((None,), (None,))]),
        LayoutError,
        [FLOW, "asked"],
    ),
    Row(
        "a flow of another shape",
        flows(lambda o, r, d, i, m: [((IndexMap.identity((2, 3)),), (m,))]),
        LayoutError,
        [FLOW, "(2, 3)"],
    ),
    Row("a flow that is no bijection", flows(squashing), LayoutError, [FLOW]),
    Row("a flow for nothing", options(flows={"relax.nothing": raising}), None, ["relax.nothing"]),
    Row("a cost that is NaN", options(cost_model=costing(math.nan)), CostError, ["run of relax.nn.", "nan"]),
    Row("a negative cost", options(cost_model=costing(-1.0)), CostError, ["run of relax.nn.", "-1"]),
    Row("an infinite cost", options(cost_model=costing(math.inf)), EqsatError, ["main", "finite"]),
    Row("a cost that is text", options(cost_model=costing("dear")), CostError, ["dear"]),
    Row(
        "a cost model that raises",
        options(cost_model=costing(ValueError("oops"))),
        CostError,
        ["run of relax.nn.", "oops"],
    ),
    Row("a cost model that is none", options(cost_model=3), CostError, ["cost_model"]),
    Row("limits that let nothing through", options(limits=Limits(nodes=1)), None, ["limit of 1 new nodes"]),
    Row("limits of one round", options(limits=Limits(rounds=1)), None, ["limit of 1 rounds"]),
    Row("limits that are a number", options(limits=3), EqsatError, ["limits", "3"]),
    Row("a time limit that is text", options(time_limit="soon"), EqsatError, ["time_limit", "soon"]),
    Row("a time limit of nothing", options(time_limit=0.0), None),
    Row("an objective that there is not", options(objective="energy"), EqsatError, ["objective", "energy", "traffic"]),
    Row("an objective that is a number", options(objective=3), EqsatError, ["objective", "3"]),
    Row("the objective that is meant anyway", options(objective="time"), None),
]


@pytest.mark.parametrize("row", OPTION_ROWS, ids=lambda row: row.name)
def test_bad_options(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_LAYOUT_CACHE", str(tmp_path / "cache"))
    check(row, tmp_path)
