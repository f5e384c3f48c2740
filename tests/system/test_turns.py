"""Threads that plan and compile at once."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest
import tvm
from programs import program
from tvm import relax
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.errors import EqsatError


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


def test_a_fork_of_a_process_that_has_planned_is_told_so() -> None:
    """It waited for ever for egglog's threads, which a fork does not have."""
    mod = program(lambda b, x: b.emit(R.exp(b.emit(R.nn.relu(x)))), (4, 6))
    eqsat_layout.optimize(mod)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = b"nothing"
        try:
            eqsat_layout.optimize(mod)
        except EqsatError as error:
            said = str(error).encode()
        finally:
            os.write(writer, said)
            os._exit(0)
    os.waitpid(child, 0)
    assert "start the process by spawning it" in os.read(reader, 1 << 12).decode()
    assert eqsat_layout.optimize(mod) is not None
