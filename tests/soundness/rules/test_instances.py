"""Ops that fit together are found for bodies of many ops."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.graph.borders import Border
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.maps import IndexMap
from eqsat_layout.soundness.rules import instance_traits, instances
from eqsat_layout.soundness.rules.body_searches import BodySearch, searches
from eqsat_layout.soundness.rules.corpus import cases_in
from eqsat_layout.soundness.rules.fuzzer import Fuzzer
from eqsat_layout.soundness.rules.instances import Instances
from eqsat_layout.soundness.rules.narrow_sums import adds_many
from eqsat_layout.soundness.rules.ops import plain_calls
from eqsat_layout.soundness.rules.rule_base import read_rule_base
from eqsat_layout.soundness.rules.schema import OpCall

CORPUS = Path(__file__).parents[1] / "bad_rules"
SHAPES = [(2, 3), (2, 4)]


def sought_by(folder: Path, text: str) -> dict[str, BodySearch]:
    path = folder / "one.egg"
    path.write_text(text)
    base = read_rule_base([*rule_files(), path])
    return dict(one for rule in base.rules if rule.file == str(path) for one in searches(base, rule))


def calls_beside_a_crop(sought, name: str) -> list:
    """Those of the instances of a rule, of shapes of which one element may be cropped."""
    parts = [IndexMap.identity(SHAPES[0]), Border(SHAPES[0], ((0, 0), (0, 1)), None)]
    found = Instances(sought).draw(SHAPES, parts, lambda shape, _: IndexMap.identity(shape), random.Random(0))
    return [call for instance in found[name] for call in instance.values()]


def test_calls_that_few_draws_find_are_found_with_every_seed(tmp_path: Path) -> None:
    """Whatever was refused was drawn anew, and nothing was learned of why: half of the vocabularies had none."""
    (case,) = (case for case in cases_in(CORPUS / "seventh_tester.egg") if case.name == "flip of a choice")
    sought = sought_by(tmp_path, case.text)
    views = [IndexMap.identity(shape) for shape in SHAPES]
    for seed in range(2):
        found = Instances(sought).draw(SHAPES, views, lambda shape, _: IndexMap.identity(shape), random.Random(seed))
        assert found[case.name]


def test_crops_are_those_that_the_body_says(tmp_path: Path) -> None:
    """A slice of every second element of two is a crop, of which rules are told without steps: it matched nothing."""
    sought = sought_by(
        tmp_path,
        '(rule ((= y (Op k (Arg x (End)))) (is k "relax.strided_slice") (attr k "axes" "[1]") (attr k "begin" "[0]")'
        ' (attr k "end" "[99]") (attr k "strides" "[2]")) ((live y)) :ruleset logical :name "steps")',
    )
    calls = calls_beside_a_crop(sought, "steps")
    assert calls
    assert all(isinstance(call, OpCall) for call in calls)


def test_crops_are_ops_with_what_was_written_where_sizes_are_not_known(tmp_path: Path) -> None:
    """A slice from -9 on is a crop that begins at 0, unless sizes are unknown: rules about it had no instance."""
    sought = sought_by(
        tmp_path,
        '(rule ((= y (Op k (Arg x (End)))) (is k "relax.strided_slice") (attr k "axes" "[0]") (attr k "begin" "[-9]")'
        ' (attr k "end" "[2]") (default k "strides")) ((live y)) :ruleset logical :name "from the ninth on")',
    )
    calls = calls_beside_a_crop(sought, "from the ninth on")
    assert any(isinstance(call, OpCall) and call.values["begin"] == [-9] for call in calls)


def test_what_is_a_view_in_whatever_call_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That there is no instance was said after half a minute: each vocabulary imported new calls that are views."""
    sought = sought_by(
        tmp_path,
        '(rule ((= y (Op k (Arg x (End)))) (is k "relax.expand_dims")'
        ' (= z (Op j (Arg y (End)))) (is j "relax.nn.relu"))'
        ' ((live z)) :ruleset logical :name "relu of an axis more")',
    )
    looked_at: list[OpCall] = []
    monkeypatch.setattr(instances, "import_together", lambda calls: looked_at.extend(calls))
    monkeypatch.setattr(instances, "unusable", lambda call: instances.IS_PART if "expand" in call.name else "")
    drawn = Instances(sought)
    views = [IndexMap.identity(shape) for shape in SHAPES]
    for seed in range(3):
        drawn.draw(SHAPES, views, lambda shape, _: IndexMap.identity(shape), random.Random(seed))
    assert drawn.why_none("relu of an axis more").endswith(instances.IS_PART)
    assert len({call for call in looked_at if "expand" in call.name}) < 2 * instances.VAIN


def test_calls_of_instances_that_are_none_are_learned_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five calls one was a view, and the four others were forgotten: with one seed a rule had no instance."""
    sought = sought_by(
        tmp_path,
        '(rule ((= y (Op k (Arg x (End)))) (is k "relax.nn.gelu") (= z (Op j (Arg y (End)))) (is j "relax.nn.relu"))'
        ' ((live z)) :ruleset logical :name "relu of gelu")',
    )
    monkeypatch.setattr(instances, "import_together", lambda calls: list(calls))
    for module in (instances, instance_traits):
        monkeypatch.setattr(module, "unusable", lambda call: "it is none" if "relu" in call.name else "")
    drawn = Instances(sought)
    drawn.draw(SHAPES, [], lambda shape, _: IndexMap.identity(shape), random.Random(0))
    assert drawn.why_none("relu of gelu")
    assert drawn._good["relax.nn.gelu"]
    assert not drawn._good["relax.nn.relu"]


def test_dtypes_that_a_rule_names_are_among_its_operands(tmp_path: Path) -> None:
    """Nothing was of 16-bit integers but what a cast had made: a rule that wanted one cast to them and back was never
    judged."""
    sought = sought_by(
        tmp_path,
        '(rule ((= y (Op k (Arg (Op j (Arg x (End))) (End)))) (is j "relax.astype") (attr j "dtype" "\'bfloat16\'")'
        ' (is k "relax.astype") (attr k "dtype" "\'int16\'")) ((live y)) :ruleset logical :name "there and back")',
    )
    views = [IndexMap.identity(shape) for shape in SHAPES]
    dtypes: set[str] = set()
    for seed in range(3):
        found = Instances(sought).draw(SHAPES, views, lambda shape, _: IndexMap.identity(shape), random.Random(seed))
        calls = [call for instance in found["there and back"] for call in instance.values() if isinstance(call, OpCall)]
        dtypes |= {ty.dtype for call in calls for ty in call.operands}
    assert "int16" in dtypes


def test_models_have_ops_whose_first_operand_is_the_smaller_one() -> None:
    """That what holds of some operand holds of the first was true of all ops: no other operand was larger."""
    types = [[ty.shape for ty in call.operands] for call in plain_calls((2, 2, 2), (2, 2, 3))]
    assert [(2,), (2, 2, 2)] in types


def test_some_axes_are_longer_than_narrow_dtypes_count(tmp_path: Path) -> None:
    """An index of int8 was as good as any: no tensor had more than 64 elements."""
    (case,) = (case for case in cases_in(CORPUS / "long_axes.egg") if case.name == "narrow index")
    views = [IndexMap.identity(shape) for shape in SHAPES]
    sought = sought_by(tmp_path, case.text)
    found = Instances(sought).draw(SHAPES, views, lambda shape, _: IndexMap.identity(shape), random.Random(0))
    calls = [call for one in found[case.name] for call in one.values() if isinstance(call, OpCall)]
    assert max(extent for call in calls for ty in call.operands for extent in ty.shape) > 255


def test_axes_of_float16_are_longer_than_it_counts(tmp_path: Path) -> None:
    """Sums of ones end at 2048 there, and axes at 320 elements: that they are exact was "ok"."""
    sought = sought_by(
        tmp_path,
        '(rule ((= y (Op k (Arg (Op j (Arg x (End))) (End)))) (is j "relax.astype") (attr j "dtype" "\'float16\'")'
        ' (is k "relax.sum") (attr k "axis" "[0]")) ((live y)) :ruleset logical :name "sum of halves")',
    )
    drawn = Instances(sought)
    extents: set[int] = set()
    for seed in range(4):
        found = drawn.draw(SHAPES, [], lambda shape, _: IndexMap.identity(shape), random.Random(seed))
        calls = [call for instance in found["sum of halves"] for call in instance.values() if isinstance(call, OpCall)]
        extents |= {int(extent) for call in calls for ty in call.operands for extent in ty.shape}
    assert max(extents) > 2048


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_running_sums_of_narrow_floats_go_along_long_axes(dtype: str, tmp_path: Path) -> None:
    """Of the four instances that a rule has among many, few had such an axis, and most of these went along another."""
    case = next(case for case in cases_in(CORPUS / "long_axes.egg") if case.name == "running sum of ones in halves")
    sought = sought_by(tmp_path, case.text.replace("float16", dtype))
    among_many = {f"rule {n}": BodySearch((), (), ()) for n in range(23)}
    drawn = Instances({**sought, **among_many})
    found = drawn.draw([(2, 3, 4)], [], lambda shape, _: IndexMap.identity(shape), random.Random(2))[case.name]
    assert any(adds_many(call) for instance in found for call in instance.values() if isinstance(call, OpCall))


def test_less_is_drawn_of_what_is_never_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that no draw fits took half a minute, as much in every vocabulary."""
    sought = sought_by(
        tmp_path, '(rule ((= y (Op k a)) (is k "relax.nn.gelu")) ((live y)) :ruleset logical :name "any gelu")'
    )
    given: list[int] = []

    class Nothing:
        draws = 0

        def __init__(self, *arguments: object):
            given.extend(draws for draws in arguments if isinstance(draws, int))

        def solve(self) -> None:
            return None

    monkeypatch.setattr(instances, "Solver", Nothing)
    drawn = Instances(sought)
    for seed in range(4):
        drawn.draw(SHAPES, [], lambda shape, _: IndexMap.identity(shape), random.Random(seed))
    assert given == [given[0], given[0] // 2, given[0] // 3, given[0] // 4]


def test_types_that_a_body_calls_by_name_are_drawn(tmp_path: Path) -> None:
    """No term was of that type but by chance: a rule about four bytes was never judged."""
    sought = sought_by(
        tmp_path,
        '(rule ((= y (Op k (Arg x (Arg z (End))))) (is k "relax.minimum") (typed x "int8[5]") (typed z "int8[3,5]"))'
        ' ((live y)) :ruleset logical :name "five bytes")',
    )
    found = Instances(sought).draw(SHAPES, [], lambda shape, _: IndexMap.identity(shape), random.Random(0))
    calls = [call for instance in found["five bytes"] for call in instance.values()]
    types = [call.operands for call in calls if isinstance(call, OpCall)]
    assert types
    assert set(types) == {(TensorType((5,), "int8"), TensorType((3, 5), "int8"))}


BORDER = """
(rule ((= y (Op k (Arg (Op j (Arg (Op i (Arg x (End))) (End))) (End)))) (is k "relax.nn.pad") (attr k "pad_width" w)
       (attr k "pad_mode" "'constant'") (attr k "pad_value" "1.0") (is j "relax.bitwise_not") (is i "relax.astype")
       (attr i "dtype" "'uint8'"))
    ((union y x)) :ruleset logical :name "border")
"""


def test_pads_with_attributes_that_a_body_says_have_several_axes(tmp_path: Path) -> None:
    """Their widths are two for each axis: only those of one axis were drawn."""
    sought = sought_by(tmp_path, BORDER)
    parts = (Border((2, 3), ((0, 0), (0, 1)), 1.0), Border((2, 3), ((1, 0), (0, 0)), -1.0))
    found = Instances(sought).draw([(2, 3)], parts, lambda shape, _: IndexMap.identity(shape), random.Random(0))
    pads = [instance["k"] for of_one in found.values() for instance in of_one]
    assert any(len(pad.shape) > 1 for pad in pads)
    assert all(pad.fill == 1.0 for pad in pads)


def test_borders_are_put_around_what_is_of_any_dtype(tmp_path: Path) -> None:
    """Views, pads and crops were put over terms of float32 only: a rule on a border of bytes had no instance."""
    path = tmp_path / "border.egg"
    path.write_text(BORDER)
    base = read_rule_base(rule_files([path]))
    model = Fuzzer(base, [rule for rule in base.rules if rule.file == str(path)]).model(1)
    bits = {number for (k, _), number in model.ops.items() if model.values.is_named(k, "relax.bitwise_not")}
    assert any(a[0] in bits for k, a in model.ops if model.values.is_named(k, "pad"))
