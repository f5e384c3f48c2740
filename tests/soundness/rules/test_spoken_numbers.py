"""Numbers of rules among the elements of random tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from soundness.rules.own_rules import own_rules

from eqsat_layout.soundness.rules.bits import RandomElements
from eqsat_layout.soundness.rules.spoken_numbers import spoken_numbers

RULE = """(rule ((= y (Op k (Arg x (Arg c (End))))) (is k "relax.equal") (filled-with c "1000") (typed x "float32[77]"))
      ((becomes y (Make "relax.clip" "min=-0.3, max=2" (Arg x (End))))) :ruleset logical :name "mine")"""


def test_numbers_of_a_rule_are_elements_in_one_world(tmp_path: Path) -> None:
    """No tensor held 1000: "no cast gives 1000" was called sound. Of 2 there are enough; 77 is no element."""
    _, (rule,) = own_rules(tmp_path, RULE)
    numbers = spoken_numbers((rule,))
    assert {1000.0, 1001.0, 999.0, -0.3} <= set(numbers)
    assert not {77.0, 32.0, 2.0} & set(numbers)
    drawn = RandomElements(0, numbers).tensor((40,)), RandomElements(0).tensor((40,))
    other = [world for world, (with_them, plain) in enumerate(zip(*drawn, strict=True)) if (with_them != plain).any()]
    assert 1 in other
    assert all(np.isnan(drawn[0][world]).any() for world in other if world != 1)
    assert np.isin(drawn[0][1], np.array(numbers, "float32")).any()
    assert RandomElements(0, numbers).tensor((40,), "int8").max() <= 127
