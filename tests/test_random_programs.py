"""Random programs through the whole of ``optimize``: well formed, and the same numbers.

``python -m eqsat_layout.soundness.programs.fuzzer SEED`` shows one; the generator beside it makes them.
"""

from __future__ import annotations

import pytest
from effort import tries
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eqsat_layout.soundness.programs.choices import Choices
from eqsat_layout.soundness.programs.outcomes import FAILED, SAME, UNCHANGED, UNRUN, ProgramOutcome
from eqsat_layout.soundness.programs.trial import check_program


def assert_fine(outcome: ProgramOutcome) -> None:
    assert outcome.kind != FAILED, f"{outcome.why}: {outcome.text}\n{outcome.program}"


@pytest.mark.parametrize("part", range(4))
def test_random_programs_compute_the_same(part: int) -> None:
    """The same programs every time, for a suite that is green or red for a reason."""
    kinds = []
    for seed in range(part * 8, part * 8 + tries(8)):
        outcome = check_program(Choices.of_seed(seed), seed)
        assert_fine(outcome)
        kinds.append(outcome.kind)
    assert SAME in kinds
    assert set(kinds) <= {SAME, UNCHANGED, UNRUN}
    assert kinds.count(UNRUN) <= 2, "what stock TVM can't build tells nothing"


@settings(max_examples=tries(12), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_generated_programs_compute_the_same(data: st.DataObject) -> None:
    """Shrunk where one fails; new ones with ``--hypothesis-profile=new``."""
    assert_fine(check_program(Choices(lambda n: data.draw(st.integers(0, n - 1))), seed=1))
