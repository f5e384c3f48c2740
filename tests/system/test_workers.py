"""Processes beside this one: results in order, and a fault costs one argument only."""

from __future__ import annotations

import os
import signal

from eqsat_layout.system.workers import WorkerError, Workers


def squared(number: int) -> int:
    if number == 3:
        raise ValueError("three")
    return number * number


HERE = os.getpid()


def dies_elsewhere(parent: int) -> str:
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    return "done here"


def test_results_come_in_order_and_faults_as_values() -> None:
    workers = Workers(1)
    for _ in range(2):  # the processes are there a second time
        results = workers.map(squared, list(range(12)))
        assert [r for r in results if isinstance(r, int)] == [n * n for n in range(12) if n != 3]
        assert isinstance(results[3], ValueError)
        assert "three" in str(results[3])


def test_without_processes_this_one_does_it_all() -> None:
    assert Workers(0).map(squared, [1, 2]) == [1, 4]
    assert Workers(0).map(squared, []) == []


def test_a_process_that_dies_is_one_result_and_another_takes_its_place() -> None:
    workers = Workers(1)
    results = workers.map(dies_elsewhere, [os.getpid()] * 3)
    assert all(r == "done here" or isinstance(r, WorkerError) for r in results)
    assert workers.map(squared, [4, 5, 6]) == [16, 25, 36]
