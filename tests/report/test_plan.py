"""Plans as a person and a program read them."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat_layout.maps import index_map_from_names
from eqsat_layout.report.changes import AS_WRITTEN, Change, joined_changes
from eqsat_layout.report.figures import format_bytes, format_seconds
from eqsat_layout.report.plan import Plan
from eqsat_layout.report.plan_tables import describe_gap, page_figures
from eqsat_layout.report.records import Refusal, Stats, Transform
from eqsat_layout.report.refusals import Refusals

_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def transform(name: str, scale: int = 1, function: str = "main") -> Transform:
    index_map = index_map_from_names("NCHW", "NCHW16c", (1, 64, 56, 56))
    assert index_map is not None
    return Transform(function, name, index_map, (1, 64, 56, 56), "float32", 1605632 * scale)


def plan(**changes: object) -> Plan:
    before = Plan(
        make_module=lambda: None,
        cost=0.010,
        input_cost=0.025,
        lower_bound=0.010,
        transforms=(transform("lv1"),),
        input_transforms=tuple(transform(f"lv{i}") for i in range(106)),
        stats=Stats(ops=176, e_nodes=12345, e_classes=2345, rounds=7, seconds={"import": 0.0123, "saturate": 0.25}),
        notes=(),
        changed=True,
    )
    return replace(before, **changes)  # type: ignore[arg-type]


def value_of(text: str) -> float:
    number, unit = text.split()
    return float(number) * _UNITS[unit]


@given(st.floats(min_value=1e-8, max_value=1e4))
def test_seconds_keep_three_digits(seconds: float) -> None:
    text = format_seconds(seconds)
    assert value_of(text) == pytest.approx(seconds, rel=0.0051, abs=0.5e-11)
    assert len(text) <= 8 or seconds > 999


@given(st.integers(min_value=0, max_value=2**49))
def test_bytes_keep_three_digits(count: int) -> None:
    text = format_bytes(count)
    assert value_of(text) == pytest.approx(count, rel=0.0051)
    assert len(text) <= 8


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (-1e-20, "0 s"), (1.234e-5, "12.3 us"), (0.00999, "9.99 ms"), (0.9996, "1.00 s"), (75.0, "75.0 s")],
)
def test_seconds_use_the_unit_that_fits(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_layouts_that_cost_more_than_the_program_as_written_are_not_called_cheaper() -> None:
    """``--desired-layout`` said "1.04 times cheaper" of a plan that cost five times the program without it."""
    dear = plan(cost=0.010, input_cost=0.0104, written_cost=0.002)
    assert "5.00 times what it costs as written, 2.00 ms" in str(dear)
    assert "cheaper" not in str(dear)
    assert ("modelled cost after", "10.0 ms", "5.00 times what it costs as written, 2.00 ms") in page_figures(dear)
    assert "2.00 times cheaper than as written, 20.0 ms" in str(replace(dear, written_cost=0.020))
    assert dear.to_dict()["written_cost_s"] == 0.002
    assert "inf times what" in str(plan(written_cost=0.0))
    assert "inf times cheaper" in str(plan(cost=0.0, written_cost=0.001))


def test_gap_is_relative_to_the_cost() -> None:
    assert plan(lower_bound=0.008).gap == pytest.approx(0.2)
    assert not plan(lower_bound=0.008).is_optimal
    assert plan().is_optimal
    assert plan(lower_bound=0.011).gap == 0.0  # a bound above the cost is rounding


def test_costs_added_up_in_another_order_are_no_gap() -> None:
    """Plans that were known to be optimal had gaps of 1e-16."""
    assert plan(cost=0.1 + 0.2 + 0.3, lower_bound=0.1 + (0.2 + 0.3)).gap == 0.0


def test_a_free_plan_has_no_gap() -> None:
    free = plan(cost=0.0, lower_bound=0.0)
    assert (free.gap, free.speedup) == (0.0, math.inf)
    assert plan(cost=0.0, lower_bound=0.0, input_cost=0.0).speedup == 1.0


def test_speedup_compares_with_the_input() -> None:
    assert plan().speedup == pytest.approx(2.5)


def test_text_states_what_was_found() -> None:
    text = str(plan(notes=("conv2d lv7: NCHW16c does not divide 3 channels",)))
    for fact in ("25.0 ms", "10.0 ms", "2.50 times cheaper", "proven optimal", "106", "lv1", "1x64x56x56 float32"):
        assert fact in text, fact
    for fact in (
        "176 ops, 12,345 e-nodes in 2,345 e-classes, 7 rounds",
        "saturate 250 ms",
        "does not divide 3 channels",
    ):
        assert fact in text, fact


def test_text_has_no_colours_and_fits_a_hundred_columns() -> None:
    long = transform("a_tensor_with_a_name_that_goes_on_and_on", function="a_function_with_a_long_name_too")
    text = str(plan(transforms=(long, transform("lv2")), notes=("word " * 60,)))
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 100
    assert not re.search(r" $", text, re.MULTILINE)


def test_names_are_not_taken_for_markup() -> None:
    text = str(plan(transforms=(transform("[bold]"), transform("[red]x", function="[/]")), notes=("[link]",)))
    assert "[bold]" in text
    assert "[/]" in text
    assert "[link]" in text


def test_long_lists_are_folded_with_the_largest_first() -> None:
    text = str(plan(transforms=tuple(transform(f"t{i}_", i + 1) for i in range(49))))
    shown = re.findall(r"t\d+_", text)
    assert shown == [f"t{i}_" for i in range(48, 37, -1)]
    assert "... and 38 more, 1.11 GiB together" in text


def test_equal_transforms_are_one_row() -> None:
    text = str(plan(transforms=tuple(transform(f"t{i}") for i in range(49))))
    assert "t0 to t48" in text
    assert "75.0 MiB" in text
    assert "more" not in text


def test_changes_come_in_rows_and_what_stays_is_left_out() -> None:
    found = joined_changes(
        [Change("conv2d", "NCHW", "NCHW16c", 4e-3, 1e-3, (f"conv{i}",)) for i in range(42)]
        + [Change("conv2d", "NCHW", "winograd F(4,3), NCHW16c", 9e-3, 1e-3, ("conv9",))]
        + [Change("flip", "NCHW", AS_WRITTEN, 1e-3, 1e-3, ("flip",))]
    )
    assert [len(change.names) for change in found] == [42, 1, 1]
    text = str(plan(told_changes=lambda: found))
    row = next(line for line in text.splitlines() if line.strip().startswith("42"))
    assert row.split() == ["42", "conv2d", "NCHW", "NCHW16c", "168", "ms", "42.0", "ms", "126", "ms"]
    assert "winograd F(4,3), NCHW16c" in text
    assert "flip" not in text


def test_notebooks_show_tables() -> None:
    nasty = plan(notes=("<script>alert(1)</script>",))
    for shown in (nasty._repr_html_(), Refusals([Refusal("relu", "result 0", None, "<b>")])._repr_html_()):
        assert shown.startswith("<pre")
        assert "<script>" not in shown
        assert "<b>" not in shown
    assert "modelled cost" in nasty._repr_html_()


def test_refusals_are_a_table_of_equal_rows() -> None:
    index_map = index_map_from_names("NCHW", "NCHW16c", (1, 64, 56, 56))
    one = Refusal("relu", "operand 0", index_map, "it is sparse", "NCHW16c")
    text = str(Refusals([one, one, one]))
    (row,) = [line.split() for line in text.splitlines() if "relu" in line]
    assert row == ["3", "relu", "NCHW16c", "operand", "0", "it", "is", "sparse"]
    assert "Nothing was refused" in str(Refusals())


def test_functions_are_named_only_where_there_are_several() -> None:
    assert "function" not in str(plan())
    assert "decode" in str(plan(transforms=(transform("a"), transform("b", function="decode"))))


def test_an_unchanged_module_is_said_to_be_so() -> None:
    text = str(plan(changed=False, cost=0.025, transforms=(), input_transforms=(), lower_bound=0.025))
    assert "unchanged" in text
    assert "cheaper" not in text
    assert "stay" not in text


def test_the_gap_is_put_into_words() -> None:
    assert describe_gap(plan(lower_bound=0.0095)) == "at most 5.00% above the optimum"


def test_plain_data_is_json() -> None:
    data = json.loads(json.dumps(plan(lower_bound=0.008).to_dict()))
    assert data["gap"] == pytest.approx(0.2)
    assert data["stats"]["seconds"] == {"import": 0.0123, "saturate": 0.25}
    assert data["transforms"] == [
        {
            "function": "main",
            "tensor": "lv1",
            "index_map": "(i, j, k, l) -> (0, j//16, k, l, j%16)",
            "before": "",
            "after": "",
            "shape": [1, 64, 56, 56],
            "dtype": "float32",
            "bytes": 1605632,
        }
    ]
    assert len(data["input_transforms"]) == 106
