"""Python's collector is where it was after a pause."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from eqsat_layout.system.collector import collector_paused


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    gc.enable()
    yield
    gc.unfreeze()
    gc.enable()


def old(one: object) -> bool:
    return any(other is one for other in gc.get_objects(2))


@pytest.mark.parametrize("all_stays", [True, False])
def test_a_pause_ends(all_stays: bool) -> None:
    inside = []
    with pytest.raises(ZeroDivisionError), collector_paused(all_stays=all_stays):
        inside.append(gc.isenabled() or 1 / 0)
    assert (inside, gc.isenabled()) == ([], True)
    gc.disable()
    with collector_paused(all_stays=all_stays):
        pass
    assert not gc.isenabled()


def test_what_stays_is_not_looked_at_again() -> None:
    with collector_paused(all_stays=True):
        made = [[]] * 2
    assert old(made)
    assert not gc.get_freeze_count()


def test_what_somebody_froze_stays_frozen() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    with collector_paused(all_stays=True):
        made: list[object] = [[]]
    assert gc.get_freeze_count() == frozen
    assert made
