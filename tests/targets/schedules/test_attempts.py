"""Refusals end where something else can be tried; faults pass, or stay with their kernel where notes are not strict."""

from __future__ import annotations

import pytest
from tvm import te
from tvm.s_tir.schedule import ScheduleError

from eqsat_layout.errors import EqsatError, Refused
from eqsat_layout.notes import Notes
from eqsat_layout.targets.schedules.attempts import isolated, tried, unless_refused
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of


def sum_of_rows():
    x, k = te.placeholder((4, 8), name="x"), te.reduce_axis((0, 8), "k")
    return te.create_prim_func([x, te.compute((4,), lambda i: te.sum(x[i, k], axis=k))], index_dtype_override="int64")


def refuse(*_):
    raise Refused("no use here")


def fail(*_):
    raise KeyError("a typo")


def test_a_refusal_gives_none_and_its_reason():
    reasons: list[str] = []
    assert unless_refused(refuse, reasons) is None
    assert unless_refused(refuse, reasons, "tiles") is None
    assert reasons == ["no use here", "tiles: no use here"]


def test_what_tvm_refuses_is_a_refusal():
    sch, reasons = new_schedule(sum_of_rows()), []
    (stage,) = stages_of(sch)
    with pytest.raises(ScheduleError):
        sch.compute_inline(stage.block)
    assert tried(sch, lambda s: s.compute_inline(stage.block), reasons) is None
    assert reasons == ["The block has init statement"], "not only that there was an error"


def test_a_change_is_made_in_a_copy():
    sch = new_schedule(sum_of_rows())
    (stage,) = stages_of(sch)
    changed = tried(sch, lambda s: s.parallel(s.get_loops(stage.block)[0]))
    assert "T.parallel" in changed.mod.script()
    assert "T.parallel" not in sch.mod.script()


def test_anything_else_passes():
    with pytest.raises(KeyError):
        unless_refused(fail)
    with pytest.raises(KeyError):
        tried(new_schedule(sum_of_rows()), fail)


def test_a_fault_is_a_note_or_raised():
    notes = Notes(strict=False)
    assert isolated(fail, "kernel add is not scheduled", notes) is None
    assert list(notes) == ["kernel add is not scheduled: KeyError: 'a typo'"]
    with pytest.raises(EqsatError, match="kernel add is not scheduled: KeyError"):
        isolated(fail, "kernel add is not scheduled", Notes(strict=True))
