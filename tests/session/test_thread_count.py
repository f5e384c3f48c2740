"""How many threads a program's loops take: as many as its runs are fastest with, at the cost of few runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tvm import relax

import eqsat_layout
from eqsat_layout.session import thread_count
from eqsat_layout.session.thread_count import ThreadCount

ROOT = Path(eqsat_layout.__file__).parents[1]
LOOPS = 10


def counts(runs: int, takes: Callable[[int, int], int], most: int = 4) -> list[int]:
    """Threads of each run, where a run of ``count`` threads takes ``takes(run, count)`` nanoseconds."""
    choice = ThreadCount()
    choice._all = choice._count = most
    found = []
    for run in range(runs):
        found.append(choice.count)
        choice.learn(takes(run, choice.count), LOOPS)
    return found


@pytest.mark.parametrize("best", [1, 2, 4])
def test_the_fastest_number_is_found_step_by_step(best: int) -> None:
    found = counts(2000, lambda _, count: 10_000 * (1 + abs(count - best)))
    assert found[-1] == best
    assert found.count(best) > 0.9 * len(found)


def test_what_changes_is_noticed_again() -> None:
    """The host of a virtual machine moves its cores apart, and back."""
    found = counts(9000, lambda run, count: 10_000 * (count if 3000 < run < 6000 else 5 - count))
    assert [found[run] for run in (2999, 5999, 8999)] == [4, 1, 4]


def test_what_disturbs_for_a_moment_is_soon_forgotten() -> None:
    """A network ran with one thread for as long as others took turns with it, whose threads spin when they are done."""
    takes = {1: 160_000, 2: 120_000, 4: 100_000}
    found = counts(4000, lambda run, count: takes[count] + (100_000 if run % 50 < 8 and count > 1 else 0))
    assert found.count(4) > 0.75 * len(found)
    assert found.count(1) < 0.1 * len(found)


def test_trials_of_what_is_slower_cost_little() -> None:
    """A run on one core may take many times as long."""
    took = {1: 400_000, 2: 300_000, 4: 100_000}
    found = counts(20_000, lambda _, count: took[count])
    assert sum(took[count] for count in found) < 1.01 * 20_000 * took[4]
    assert set(found[100:]) == {2, 4}, "neighbours are tried for as long as the program runs"


def test_noise_is_no_reason() -> None:
    found = counts(5000, lambda run, _: 10_000 + run * 7919 % 500)
    assert found.count(4) > 0.8 * len(found)


@pytest.mark.parametrize("loops", [0, LOOPS])
def test_runs_without_loops_and_with_long_ones_take_all(loops: int) -> None:
    choice = ThreadCount()
    choice._all = choice._count = 4
    for _ in range(500):
        choice.learn(thread_count._LONG * (loops + 1), loops)
        assert choice.count == 4


def test_a_session_gives_the_same_with_any_number_of_threads(tmp_path: Path) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((192, 512), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(builder.emit(relax.op.nn.softmax(relax.op.exp(x), axis=-1)))
        builder.emit_func_output(y)
    eqsat_layout.Session(builder.get(), target={"kind": "llvm", "num-cores": 3}).save(tmp_path / "rows.so")
    code = f"""
import numpy as np, eqsat_layout
from eqsat_layout.session import thread_count
from eqsat_layout.system.thread_pool import caller_of_pool
thread_count._LONG = 10**9
session = eqsat_layout.Session({str(tmp_path / "rows.so")!r})
x = np.random.default_rng(0).standard_normal((192, 512)).astype("float32")
first = session.run(None, {{"x": x}})[0].tobytes()
seen = set()
for _ in range(300):
    seen.add(session._runs._threads.count)
    assert session.run(None, {{"x": x}})[0].tobytes() == first
    assert caller_of_pool().most == 0, "what else this thread runs takes all threads"
assert len(seen) > 1 and caller_of_pool().loops >= 300, (seen, caller_of_pool().loops)
"""
    own = os.environ | {"PYTHONPATH": str(ROOT), "TVM_NUM_THREADS": "3"}
    subprocess.run([sys.executable, "-c", code], env=own, check=True, timeout=120)
