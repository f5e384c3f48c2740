"""What models are made for: terms of a rule's body, and of the rules that it builds on."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from soundness.rules.own_rules import own_rules

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.graph.borders import Part
from eqsat_layout.graph.part_calls import part_calls
from eqsat_layout.maps import Digit, IndexMap
from eqsat_layout.soundness.rules.body_searches import searches
from eqsat_layout.soundness.rules.instances import Instances
from eqsat_layout.soundness.rules.rule_base import RuleBase, read_rule_base
from eqsat_layout.soundness.rules.schema import OpCall

CHAIN = """
(relation zero (Tensor))
(rule ((= z (Op k (Arg x (End)))) (is k "relax.zeros_like")) ((zero z)) :ruleset logical :name "like")
(rule ((zero z) (= y (Op k (Arg x (Arg z (End))))) (is k "relax.multiply")) ((zero y)) :ruleset logical :name "times")
(rule ((zero y) (= w (Op k (Arg x (Arg y (End))))) (is k "relax.add")) ((union w x)) :ruleset logical :name "sum")
"""


def named(base: RuleBase, name: str) -> list[set[str]]:
    """The ops of every way to look for the body of the rule with that name."""
    (rule,) = (rule for rule in base.rules if rule.name.endswith(name))
    return [{op for _, op in sought.named} for _, sought in searches(base, rule)]


def test_rules_of_a_chain_are_looked_for_in_one_another(tmp_path: Path) -> None:
    """A sum with a product with zeros: of 1 000 instances one was found, and the wrong rule was "ok"."""
    path = tmp_path / "chain.egg"
    path.write_text(CHAIN, encoding="utf-8")
    found = named(read_rule_base([*rule_files(), path]), "sum")
    assert {"relax.add"} in found
    assert {"relax.add", "relax.zeros_like"} in found
    assert {"relax.add", "relax.multiply", "relax.zeros_like"} in found


COUNTED = """
(relation depth (Tensor Tensor i64))
(rule ((= y (Op k (Arg x (End)))) (is k "relax.negative")) ((depth y x 1)) :ruleset logical :name "first")
(rule ((depth y x n) (= z (Op k (Arg y (End)))) (is k "relax.bitwise_not")) ((depth z x (+ n 1)))
    :ruleset logical :name "next")
(rule ((depth y x 2)) ((union y x)) :ruleset logical :name "two")
"""


def test_counts_in_a_chain_are_looked_for(tmp_path: Path) -> None:
    """Only what rules conclude of names was: ops that a count leads to met by chance, or never."""
    path = tmp_path / "chain.egg"
    path.write_text(COUNTED, encoding="utf-8")
    found = named(read_rule_base([*rule_files(), path]), "two")
    assert {"relax.bitwise_not", "relax.negative"} in found
    assert {"relax.negative"} not in found  # that is one deep


def test_terms_that_a_chain_concludes_of_are_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "chain.egg"
    path.write_text(
        """(relation first (Tensor))
        (rule ((= y (Op k a)) (is k "relax.topk")) ((first (Get 0 y))) :ruleset logical :name "made")
        (rule ((first y) (= z (Op k (Arg y (End)))) (is k "relax.abs")) ((union z y)) :ruleset logical :name "used")
        """,
        encoding="utf-8",
    )
    base = read_rule_base([*rule_files(), path])
    (rule,) = (rule for rule in base.rules if rule.name == "used")
    _, (_, sought) = searches(base, rule)
    assert {op for _, op in sought.named} == {"relax.topk", "relax.abs"}
    assert [b[0] for a, b in sought.equations if a == "y"] == ["Get"]


def test_a_relation_with_a_meaning_is_looked_for_by_it(tmp_path: Path) -> None:
    path = tmp_path / "chain.egg"
    path.write_text(";= (zero z) := (live z)\n" + CHAIN, encoding="utf-8")
    assert named(read_rule_base([*rule_files(), path]), "sum") == [{"relax.add"}]


def test_views_have_the_attributes_that_a_rule_says(tmp_path: Path) -> None:
    base, (rule,) = own_rules(
        tmp_path,
        """(rule ((= y (Op k (Arg x (End)))) (is k "relax.permute_dims") (attr k "axes" "[0, 3, 1, 2]"))
                 ((union y x)) :ruleset logical :name "moved")""",
    )
    shape = (1, 2, 3, 4)
    turned = IndexMap.make(shape, [[Digit(axis, 1, shape[axis])] for axis in (3, 2, 1, 0)])
    instances = Instances(dict(searches(base, rule))).draw([shape], [turned], lambda *_: turned, random.Random(0))
    chosen = [instance["k"] for found in instances.values() for instance in found]
    assert chosen
    assert turned not in chosen
    axes = {str(c.attributes.get("axes")) for p in chosen if isinstance(p, IndexMap) for c in part_calls(p)}
    assert "[0, 3, 1, 2]" in axes


def drawn(tmp_path: Path, rule: str, shapes: Sequence[tuple[int, ...]]) -> list[Mapping[str, OpCall | Part]]:
    """Instances of a rule's body in a vocabulary after each other."""
    base, (mine,) = own_rules(tmp_path, rule)
    instances, rng = Instances(dict(searches(base, mine))), random.Random(0)
    found = [instances.draw([shape], [], lambda shape, _: IndexMap.identity(shape), rng) for shape in shapes]
    return [one for made in found for several in made.values() for one in several]


def test_ops_of_any_one_name_take_turns(tmp_path: Path) -> None:
    """Those without attributes were always thought new, and the others were seldom drawn."""
    found = drawn(
        tmp_path,
        """(rule ((= y (Op j (Arg x (End)))) (= z (Op h (Arg x (End)))) (is j n) (is h n) (gives j t) (typed x t))
                 ((union y z)) :ruleset logical :name "one name")""",
        [(2, 3), (4, 4), (3, 3), (2, 2)],
    )
    names = {call.name for one in found for call in one.values() if isinstance(call, OpCall)}
    assert len(names) >= 25
    assert names & {"relax.tril", "relax.triu", "relax.cumsum", "relax.cumprod", "relax.sort", "relax.flip"}


def test_what_is_said_to_be_some_text_is_looked_for_as_that(tmp_path: Path) -> None:
    """Where a type, a name or an attribute stood behind a variable, instances were found by chance only."""
    base, (rule,) = own_rules(
        tmp_path,
        """(rule ((= y (Op k (Arg x (End)))) (is k n) (= n "relax.sum") (attr k "axis" a) (= "[0]" a)
                  (typed x t) (= t "int8[5]")) ((live y)) :ruleset logical :name "behind variables")""",
    )
    ((_, sought),) = searches(base, rule)
    assert sought.named == (("k", "relax.sum"),)
    assert sought.typed == (("x", '"int8[5]"'),)
    assert sought.attributes == (("k", "axis", '"[0]"'),)
