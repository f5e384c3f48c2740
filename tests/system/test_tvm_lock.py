"""Threads that plan and compile at once."""

from __future__ import annotations

import gc
import os
import select
import signal
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from programs import program
from tvm import relax
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.egraph.engine import Engine
from eqsat_layout.errors import EqsatError
from eqsat_layout.system.tvm_lock import one_at_a_time


@pytest.mark.parametrize("entry", [eqsat_layout.optimize, eqsat_layout.compile])
def test_threads_may_do_it_at_once(entry: Any) -> None:
    """TVM's te and BlockBuilder raised AssertionError ("nested op_tag") in all but one of four threads."""
    results: dict[int, Any] = {}
    programs = [program(lambda b, x: R.exp(b.emit(R.nn.relu(x))), (4, 6 + number)) for number in range(4)]

    def work(number: int) -> None:
        try:
            results[number] = entry(programs[number])
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not [error for error in results.values() if isinstance(error, BaseException)]


def test_what_threads_compiled_runs() -> None:
    found: list[Any] = []
    mod = program(lambda b, x: b.emit(R.nn.relu(x)), (4, 6))
    threads = [threading.Thread(target=lambda: found.append(eqsat_layout.compile(mod))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    x = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")
    for executable in found:
        result = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x))
        np.testing.assert_array_equal(result.numpy(), np.maximum(x, 0))
    assert len(found) == 3


def of_a_fork(does: Callable[[], str]) -> str:
    """What a fork of this process says; it has a minute."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            said = does()
        except EqsatError as error:
            said = str(error)
        finally:
            os.write(writer, said.encode())
            os._exit(0)
    ready, _, _ = select.select([reader], [], [], 60)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return os.read(reader, 1 << 12).decode() if ready else "it hangs"


def test_a_fork_of_a_process_that_has_planned_is_told_so() -> None:
    """It waited for ever for egglog's threads, which a fork does not have."""
    mod = program(lambda b, x: b.emit(R.exp(b.emit(R.nn.relu(x)))), (4, 6))
    eqsat_layout.optimize(mod)
    assert "start the process by spawning it" in of_a_fork(lambda: str(eqsat_layout.optimize(mod)))
    assert eqsat_layout.optimize(mod) is not None


@pytest.mark.parametrize("made_in", ["this thread", "another thread"])
def test_a_fork_leaves_the_e_graphs_of_its_parent_alone(made_in: str) -> None:
    """The collector of a fork freed one, and waited for ever for egglog's threads: CI ended after 90 minutes."""
    kept: list[Any] = []
    gc.disable()  # until the fork, they are garbage that nobody has found

    def make() -> None:
        engine = Engine(())
        engine.load({})
        engine.itself = engine  # type: ignore[attr-defined]
        kept.append(weakref.ref(engine))

    if made_in == "this thread":
        make()
    else:
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
    try:
        assert of_a_fork(lambda: f"{gc.collect() > 0}") == "True"
        assert kept[0]() is not None
    finally:
        gc.enable()
    gc.collect()
    assert kept[0]() is None


def test_a_fork_of_a_process_in_which_another_thread_plans_is_told_so() -> None:
    """It waited for ever for what that thread held: the lock of a property, that of a module which was imported."""
    is_inside, goes_on = threading.Event(), threading.Event()
    mod = program(lambda b, x: b.emit(R.exp(x)), (4, 6))

    @one_at_a_time
    def work() -> None:
        is_inside.set()
        goes_on.wait()

    thread = threading.Thread(target=work)
    thread.start()
    is_inside.wait()
    try:
        assert "while another thread planned" in of_a_fork(lambda: str(eqsat_layout.optimize(mod)))
        assert "while another thread planned" in of_a_fork(lambda: str(eqsat_layout.Session(mod)))
    finally:
        goes_on.set()
        thread.join()


def test_a_fork_of_the_thread_that_plans_is_as_any_other() -> None:
    @one_at_a_time
    def fork() -> str:
        return of_a_fork(one_at_a_time(lambda: "went through"))

    assert fork() == "went through"
