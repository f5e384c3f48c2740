"""Parallel loops of kernels: each iteration once, whoever else runs, in processes that fork, and errors are told."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tvm import relax
from tvm.support import cc

import eqsat_layout
from eqsat_layout.session.runtime import _load
from eqsat_layout.system.thread_pool import Caller
from eqsat_layout.targets import executable

ROOT = Path(eqsat_layout.__file__).parents[1]


class Environment(ctypes.Structure):
    _fields_ = (("sync", ctypes.c_void_p), ("tasks", ctypes.c_int32))


LOOP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(Environment), ctypes.c_void_p)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The pool in a library of its own, with four threads."""
    _load()
    folder = tmp_path_factory.mktemp("pool")
    cc.create_shared(str(folder / "pool.so"), [str(executable._thread_pool_in(folder))])
    library = ctypes.CDLL(str(folder / "pool.so"))
    library.eqsat_layout_set_threads(4)
    library.eqsat_layout_allocate.restype = ctypes.c_void_p
    library.eqsat_layout_allocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int]
    library.eqsat_layout_free.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    return library


def test_it_is_compiled_once_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was for every library, which took longer than to link it."""
    first = executable._thread_pool_in(tmp_path).read_bytes()
    monkeypatch.setattr(executable.subprocess, "run", None)
    assert executable._thread_pool_in(tmp_path).read_bytes() == first


def begun(pool: Any, task: Callable[[int, int], int], tasks: int = 0) -> int:
    """What a loop gives whose body is ``task``, of a number and how many there are."""
    return int(pool.eqsat_layout_launch(LOOP(lambda i, env, _: task(i, env.contents.tasks)), None, tasks))


@pytest.mark.parametrize("tasks", [0, 1, 3, 4, 1000])
def test_each_piece_is_run_once(pool: Any, tasks: int) -> None:
    for _ in range(50):
        seen: list[tuple[int, int]] = []
        assert begun(pool, lambda i, n, seen=seen: seen.append((i, n)) or 0, tasks) == 0  # type: ignore[misc]
        (count,) = {n for _, n in seen}
        assert count == tasks or not tasks
        assert sorted(i for i, _ in seen) == list(range(count))


def test_who_begins_a_loop_does_what_nobody_else_has_begun(pool: Any) -> None:
    """TVM's pool waits until the system has run each of its threads: on a busy machine five times as long as peers."""
    held, inside = threading.Event(), threading.Event()
    caller, others = threading.get_ident(), set()

    def task(i: int, _: int) -> int:
        if threading.get_ident() != caller and not others:
            others.add(i)
            inside.set()
            assert held.wait(20)  # a thread that the system does not run
        elif i == 99:
            inside.wait(0.2)
        done.append(i)
        if len(done) == 99:
            held.set()
        return 0

    done: list[int] = []
    assert begun(pool, task, 100) == 0
    assert sorted(done) == list(range(100))


def test_loops_in_loops_and_beside_each_other_are_run(pool: Any) -> None:
    totals = [0] * 4
    lock = threading.Lock()

    def count(at: int) -> int:
        with lock:
            totals[at] += 1
        return 0

    def caller(at: int) -> None:
        for _ in range(20):
            begun(pool, lambda i, n: begun(pool, lambda j, m: count(at), 3), 5)

    threads = [threading.Thread(target=caller, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert totals == [20 * 5 * 3] * 4


@pytest.mark.parametrize("most", [1, 2, 3, 9])
def test_a_loop_takes_no_more_threads_than_its_beginner_allows(pool: Any, most: int) -> None:
    pool.eqsat_layout_caller.restype = ctypes.POINTER(Caller)
    own = pool.eqsat_layout_caller().contents
    before, own.most = own.loops, most
    try:
        for _ in range(50):
            seen: list[int] = []
            who: set[int] = set()
            assert (
                begun(pool, lambda i, n, to=seen, by=who: to.append(i) or by.add(threading.get_ident()) or 0, 90) == 0
            )  # type: ignore[misc]
            assert sorted(seen) == list(range(90))
            assert len(who) <= most
    finally:
        own.most = 0
    assert own.loops == before + 50


def test_a_piece_that_fails_is_told(pool: Any) -> None:
    for failing in (0, 63):
        assert begun(pool, lambda i, n, failing=failing: -1 if i == failing else 0, 64) == -1  # type: ignore[misc]
    assert begun(pool, lambda i, n: 0, 64) == 0


def test_a_session_runs_in_its_threads_and_in_a_fork(tmp_path: Path) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((512, 4096), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(builder.emit(relax.op.exp(x)))
        builder.emit_func_output(y)
    eqsat_layout.Session(builder.get(), target={"kind": "llvm", "num-cores": 3}).save(tmp_path / "exp.so")
    code = f"""
import os, numpy as np, eqsat_layout
from eqsat_layout.system import thread_pool
session = eqsat_layout.Session({str(tmp_path / "exp.so")!r})
x = np.linspace(-1, 1, 512 * 4096).reshape(512, 4096).astype("float32")
def right():
    return all(np.allclose(session.run(None, {{"x": x}})[0], np.exp(x), rtol=1e-5) for _ in range(5))
assert right()
assert len(thread_pool._pools) == 1
assert len(os.listdir("/proc/self/task")) >= 3, "one thread for each"
child = os.fork()
if not child:
    os._exit(0 if right() else 1)
assert os.waitpid(child, 0)[1] == 0 and right()
"""
    own = os.environ | {"PYTHONPATH": str(ROOT), "TVM_NUM_THREADS": "3"}
    subprocess.run([sys.executable, "-c", code], env=own, check=True, timeout=120)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the register is of x86")
def test_pieces_have_the_floating_point_control_of_who_begins_the_loop(pool: Any) -> None:
    """Results too small for a normal number were 0 in the caller's pieces only."""
    math = ctypes.CDLL(None)
    default, upward = math.fegetround(), 0x800
    one, little = 1.0, 2.0**-60
    are_upward: dict[int, bool] = {}
    both = threading.Barrier(2)

    def task(i: int, _: int) -> int:
        both.wait(20)
        are_upward[threading.get_ident()] = one + little > one
        return 0

    assert begun(pool, lambda i, n: 0) == 0  # threads begin as who starts them
    math.fesetround(upward)
    try:
        assert begun(pool, task, 2) == 0
    finally:
        math.fesetround(default)
    assert list(are_upward.values()) == [True, True]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the register is of x86")
def test_a_loop_in_a_later_piece_does_not_hide_that_one_was_refused(pool: Any) -> None:
    """The thread kept the floating point control of the kernel."""
    math = ctypes.CDLL(None)
    default, upward = math.fegetround(), 0x800
    one, little = 1.0, 2.0**-60

    def task(i: int, _: int) -> int:
        if i == 1:
            return begun(pool, lambda j, m: 0, 3)
        assert pool.eqsat_layout_allocate(1, 0, 1 << 50, 2, 32) is None
        math.fesetround(upward)
        return -1

    pool.eqsat_layout_set_threads(1)
    try:
        assert begun(pool, task, 2) == -1
        assert one + little == one
    finally:
        math.fesetround(default)
        pool.eqsat_layout_set_threads(4)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_piece_that_fails_holds_is_given_back(pool: Any, threads: int) -> None:
    """Whatever it fails for."""

    def task(i: int, _: int) -> int:
        assert pool.eqsat_layout_allocate(1, 0, 1 << 24, 2, 32)
        return -1

    pool.eqsat_layout_set_threads(threads)
    sizes = []
    try:
        for _ in range(121):
            assert begun(pool, task, 8) == -1
            sizes.append(_addresses())
    finally:
        pool.eqsat_layout_set_threads(4)
    grown = [sizes[end] - sizes[end - 30] for end in (60, 90, 120)]
    assert min(grown) < 16 << 24  # threads that begin, as on a busy machine, have addresses of their own


def test_memory_is_used_again_and_what_there_is_not_is_no_pointer(pool: Any) -> None:
    allocate, free = pool.eqsat_layout_allocate, pool.eqsat_layout_free
    first, second = (allocate(1, 0, size, 2, 32) for size in (1 << 20, 5000))
    assert first % 64 == second % 64 == 0
    assert free(1, 0, first) == free(1, 0, second) == 0
    assert allocate(1, 0, 6000, 2, 32) == second  # not the large one
    assert allocate(1, 0, 1 << 20, 2, 32) == first
    assert allocate(1, 0, 1 << 50, 2, 32) is allocate(1, 0, 2**64 - 1, 2, 32) is None
    many = [allocate(1, 0, 4096, 2, 32) for _ in range(40)]  # more than a thread keeps
    assert len(set(many)) == 40
    assert all(free(1, 0, one) == 0 for one in many)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_larger_block_takes_the_place_of_a_smaller_one(pool: Any) -> None:
    """One block of each size was kept, and each kernel had one that was in no cache."""
    allocate, free = pool.eqsat_layout_allocate, pool.eqsat_layout_free
    sizes = [n << 24 for n in range(1, 17)]  # 2.2 GiB together, of addresses only
    before = _addresses()
    for size in sizes:
        assert free(1, 0, allocate(1, 0, size, 2, 32)) == 0
    assert _addresses() - before < 2 * max(sizes)


def _addresses() -> int:
    """Bytes of the process's address space."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
