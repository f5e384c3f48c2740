"""Measuring on a device behind TVM's RPC tracker: a real tracker and real servers, as processes on this machine."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.support import cc
from typer.testing import CliRunner

from eqsat_layout.cli.main import app
from eqsat_layout.cost.database import Database
from eqsat_layout.errors import EqsatError, TargetError
from eqsat_layout.graph.graph import Signature
from eqsat_layout.graph.importer import import_module
from eqsat_layout.readers.modules import write_module
from eqsat_layout.targets.cpu.machine import machine_of
from eqsat_layout.targets.registry import target
from eqsat_layout.tuning.measure import op_kernel
from eqsat_layout.tuning.probe import Probe
from eqsat_layout.tuning.remote import Remote, RemoteRunner
from eqsat_layout.tuning.remote_programs import copied
from eqsat_layout.tuning.tune import tune

pytest.importorskip("tornado", reason="TVM's RPC tracker is made with tornado")
if cc.get_cc() is None:
    pytest.skip("programs that are sent to a device are linked with a C compiler", allow_module_level=True)

HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def tracker() -> Iterator[int]:
    """The port of a tracker."""
    from tvm.rpc.tracker import Tracker

    process = Tracker(HOST, port=free_port(), port_end=1 << 16, silent=True)
    yield int(process.port)
    process.terminate()


def serve(tracker: int, key: str) -> Any:
    """A device: a process that serves one session at a time."""
    from tvm.rpc import Server

    return Server(HOST, port=free_port(), port_end=1 << 16, tracker_addr=(HOST, tracker), key=key, silent=True)


@pytest.fixture(scope="module")
def device(tracker: int) -> Iterator[Remote]:
    process = serve(tracker, "device")
    yield appeared(Remote(HOST, tracker, "device", patience=20.0))
    process.terminate()


def appeared(remote: Remote) -> Remote:
    """The device, once the tracker knows it."""
    end = time.monotonic() + 20
    while True:
        try:
            remote.runner()
            return remote
        except TargetError:
            assert time.monotonic() < end
            time.sleep(0.05)


def product(make_module: Callable[..., Any]) -> Any:
    return make_module(lambda emit, x, w: emit(relax.op.nn.relu(emit(relax.op.matmul(x, w)))), (5, 32), (32, 48))


@pytest.fixture(scope="module")
def matmul(make_module: Callable[..., Any]) -> Signature:
    signatures = import_module(product(make_module)).signatures.values()
    return next(s for s in signatures if s.name == "relax.matmul")


def added(runner: RemoteRunner, *operands: Any) -> Probe:
    """A probe of an addition."""
    given = operands or (np.ones(8, "float32"), np.ones(8, "float32"))
    return Probe("add", lambda _, xs: relax.op.add(*xs), given, given[0].nbytes, runner)


# ---- measuring -------------------------------------------------------------------------------------------------------


def test_a_device_says_what_it_is(device: Remote) -> None:
    here, there = target().tvm, device.runner().target.tvm
    assert dict(there.attrs)["mcpu"] == dict(here.attrs)["mcpu"]
    assert int(dict(there.attrs)["num-cores"]) >= 1
    assert int(dict(device.runner({"kind": "llvm", "num-cores": 3}).target.tvm.attrs)["num-cores"]) == 3


def test_devices_are_known_by_their_key_and_target(device: Remote) -> None:
    name = device.runner().target.name
    assert "RPC device device" in name
    assert name != target(device.runner().target.tvm).name
    assert device.runner({"kind": "llvm", "num-cores": 3}).target.name != name


def test_exact_arithmetic_there_leaves_out_the_matrix_unit(device: Remote) -> None:
    given = {"kind": "llvm", "mcpu": "sapphirerapids", "mattr": ["+amx-tile", "+amx-bf16"]}
    assert machine_of(device.runner(given).target.tvm).matrix_unit
    assert not machine_of(device.runner(given, approx=False).target.tvm).matrix_unit


def test_tuning_there_measures_the_kernels_that_tuning_here_does(
    device: Remote, make_module: Callable[..., Any], tmp_path: Path
) -> None:
    mod = product(make_module)
    there = tune(mod, database=tmp_path, remote=device)
    assert there.failures == ()
    assert (there.left, there.modelled) == (0, ())
    assert there.measured >= 2
    machine = device.runner().target.name
    assert there.machine == machine
    here = tune(mod, database=tmp_path)
    assert here.known == 0, "what a device measures says nothing of this machine"
    snapshot, release = Database(tmp_path).read(), target().version
    for signature in import_module(mod).signatures.values():
        kernel = op_kernel(signature)
        assert kernel is not None
        found = [snapshot.kernels(m, release, kernel.key.computation) for m in (machine, target().name)]
        assert all(found), signature.name
        assert all(0 < record.seconds < 0.1 and record.runs >= 5 for f in found for record in f.values())
    again = tune(mod, database=tmp_path, remote=device)
    assert (again.measured, again.cost) == (0, there.cost)


def test_operands_arrive_as_they_are(device: Remote) -> None:
    x, y = (np.random.default_rng(i).standard_normal((64, 3)).astype("float32") for i in range(2))
    with added(device.runner(), x, y) as probe:
        loaded: Any = probe._loaded
        for sent, kept in zip(loaded.operands, (x, y), strict=True):
            assert np.array_equal(sent.numpy(), kept)
            assert np.array_equal(copied(sent, loaded.session.cpu(0)).numpy(), kept)
        seconds = probe.times(4)
        assert len(seconds) == 4
        assert all(s > 0 for s in seconds)


def test_a_program_is_linked_there_where_it_can_not_be_here(device: Remote) -> None:
    class Foreign(RemoteRunner):
        def _links_here(self) -> bool:
            return False

    with added(Foreign(device, device.runner().target)) as probe:
        assert min(probe.times(3)) > 0


def test_a_kernel_that_takes_too_long_is_given_up_and_the_device_is_free_again(device: Remote) -> None:
    with added(replace(device, kernel_seconds=0.5).runner()) as probe:
        time.sleep(1.0)
        with pytest.raises(EqsatError, match="failed on device 'device'") as caught:
            probe.times(3)
        assert not isinstance(caught.value, TargetError)
    assert device.runner().target.name


def test_what_fails_there_is_no_loss_of_the_device(device: Remote, matmul: Signature) -> None:
    loaded: Any = added(device.runner())._loaded
    with pytest.raises(EqsatError, match="failed on device 'device' of the RPC tracker at 127") as caught:
        loaded.runs("nothing", 1)
    assert not isinstance(caught.value, TargetError)
    kernel = op_kernel(matmul)
    assert kernel is not None
    assert kernel.measure(device.runner()).seconds > 0


def test_a_device_without_opencl_is_told_before_anything_is_built(device: Remote) -> None:
    """Each kernel was built, sent there and failed, with one and the same reason."""
    with pytest.raises(TargetError, match=r"device 'device' of .*: TVM's runtime finds no opencl device there"):
        device.runner({"kind": "opencl", "device": "adreno"})


# ---- what can't be reached -------------------------------------------------------------------------------------------


def test_a_device_that_is_lost_is_named_with_its_tracker(tracker: int, matmul: Signature) -> None:
    process = serve(tracker, "mortal")
    runner = appeared(Remote(HOST, tracker, "mortal", patience=5.0)).runner()
    with added(runner) as probe:
        process.terminate()
        with pytest.raises(TargetError, match=rf"the connection to device 'mortal' .* at {HOST}:{tracker} was lost"):
            probe.times(3)
    kernel = op_kernel(matmul)
    assert kernel is not None
    with pytest.raises(TargetError, match=rf"the RPC tracker at {HOST}:{tracker} has no device 'mortal'"):
        kernel.measure(runner)


def test_an_unknown_key_is_refused_with_those_that_there_are(device: Remote) -> None:
    with pytest.raises(TargetError, match=rf"at {HOST}:{device.port} has no device 'phone'; it has 'device'"):
        Remote(HOST, device.port, "phone").runner()


def test_where_nothing_listens_is_no_tracker() -> None:
    port, start = free_port(), time.monotonic()
    with pytest.raises(TargetError, match=rf"no RPC tracker answers at {HOST}:{port}: .*refused"):
        Remote(HOST, port, "device").runner()
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "place", ['"127.0.0.1", Infinity', '"127.0.0.1", 65558', '"127.0.0.1", 0', '"\\ud800", 9000', '"a\\u0000b", 9000']
)
def test_a_tracker_that_names_no_place_is_refused(place: str) -> None:
    """``Infinity`` was a traceback; of 65558 the system made port 22."""
    free = '[0, {"server_info": [{"key": "server:k"}], "queue_info": {"k": {"free": 1}}}]'
    with socket.create_server((HOST, 0)) as server:

        def answer() -> None:
            line, _ = server.accept()
            with line:
                line.sendall(line.recv(4))
                for text in (free, f'[0, [{place}, "match"]]'):
                    line.recv(1 << 16)
                    line.sendall(struct.pack("<i", len(text)) + text.encode())
                line.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(TargetError, match="no RPC tracker answers"):
            Remote(HOST, server.getsockname()[1], "k").session()
        thread.join()


def test_what_answers_something_else_is_no_tracker() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            line, _ = server.accept()
            with line:
                line.sendall(b"HTTP/1.1 400 Bad Request\r\n")
                line.recv(100)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(TargetError, match=rf"what listens at {HOST}:{port} is no RPC tracker"):
            Remote(HOST, port, "device").runner()
        thread.join()


def test_a_device_that_others_have_is_waited_for_only_so_long(device: Remote) -> None:
    session = device.session()
    try:
        with pytest.raises(TargetError, match=r"others have had it for 0\.2 s"):
            Remote(HOST, device.port, "device", patience=0.2).runner()
    finally:
        session.get_function("CloseRPCConnection")()
    assert device.runner().target.name


def test_the_command_measures_there(device: Remote, make_module: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    write_module(product(make_module), path)
    arguments = ["tune", str(path), "-o", str(tmp_path / "cache"), "--tracker", f"{HOST}:{device.port}", "--key"]
    result = CliRunner().invoke(app, [*arguments, "device"])
    assert result.exit_code == 0, result.output
    assert "RPC device device" in result.output
    assert "all of its kernels are measured" in result.output
    result = CliRunner().invoke(app, [*arguments, "phone"])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"eqsat-layout: the RPC tracker at {HOST}:{device.port} has no device 'phone'")
    assert result.stderr.count("\n") == 1
