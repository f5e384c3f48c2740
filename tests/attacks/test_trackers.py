"""Trackers, databases and pipes: what they give is data or nothing, and nobody waits for it for ever."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from eqsat_layout.cost.database import Database
from eqsat_layout.egraph.rules import read_all
from eqsat_layout.errors import RuleError, TargetError
from eqsat_layout.readers.modules import FileError, read_module
from eqsat_layout.tuning import remote
from eqsat_layout.tuning.relay import relayed
from eqsat_layout.tuning.remote import Remote


@contextmanager
def tracker(answer: bytes, pause: float = 0.0) -> Iterator[Remote]:
    """A server that says ``answer``, a byte at a time with a pause between."""
    server = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve() -> None:
        try:
            line, _ = server.accept()
            with line:
                for byte in answer:
                    line.sendall(bytes([byte]))
                    if done.wait(pause):
                        return
                done.wait(60)
        except OSError:
            pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield Remote("127.0.0.1", server.getsockname()[1], "key", patience=0.2)
    finally:
        done.set()
        server.close()
        thread.join()


MAGIC = struct.pack("<i", 0x2F271)


def said(value: Any) -> bytes:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("<i", len(text)) + text


@pytest.mark.parametrize(
    "answer",
    [
        b"GET ",
        MAGIC + struct.pack("<i", -5),
        MAGIC + struct.pack("<i", 1 << 30),
        MAGIC + said(b"["),
        MAGIC + said(b"[" * 100_000),
        MAGIC + said([0, {}]),
        MAGIC + said([0, {"server_info": [{"key": 3}], "queue_info": 5}]),
        MAGIC + said([0, {"server_info": [{"key": "server:key"}], "queue_info": {"key": {"free": "x"}}}]),
        MAGIC + said([0, {"server_info": [{"key": "server:key"}], "queue_info": {"key": {"free": 1}}}]) + said([0, 1]),
    ],
)
def test_a_tracker_that_answers_anything_is_refused(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_ANSWER", 0.5)
    with tracker(answer) as device, pytest.raises(TargetError):
        device._lent()


def test_a_tracker_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_ANSWER", 0.3)
    start = time.monotonic()
    with tracker(MAGIC + said([0, {}]), pause=0.2) as device, pytest.raises(TargetError, match="timed out"):
        device._lent()
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "line",
    [b"[" * 100_000, b'{"sum":"00000000",{}}', b"\x80\x02cos\nsystem\n.", b"\0" * 10_000, b'{"sum":"' + b"9" * 5000],
)
def test_a_line_of_the_database_is_data_or_nothing(tmp_path: Path, line: bytes) -> None:
    database = Database(tmp_path)
    database.path.write_bytes(line + b"\n")
    snapshot = database.read()
    assert not snapshot.has_kernels
    assert "damaged" in " ".join(snapshot.notes)


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    """Opening one waits for ever."""
    os.mkfifo(tmp_path / "m.py")
    with pytest.raises(FileError, match="a pipe or a device"):
        read_module(tmp_path / "m.py")
    with pytest.raises(RuleError, match="a pipe or a device"):
        read_all([tmp_path / "m.py"])
    database = Database(tmp_path)
    os.mkfifo(database.path)
    assert "a pipe or a device" in " ".join(database.read().notes)
    assert database.digest() == ""


GREETING = struct.pack("<ii", 0xFF271, 10) + b"server:key"

DEVICES: dict[str, tuple[bytes, float]] = {
    "silent": (b"", 0.0),
    "a name without end": (struct.pack("<ii", 0xFF271, (1 << 31) - 1), 0.0),
    "a name of less than nothing": (struct.pack("<ii", 0xFF271, -1), 0.0),
    "trickling": (GREETING, 0.2),
    "silent to a call": (GREETING, 0.0),
    "an answer without end": (GREETING + struct.pack("<Qi", (1 << 26) + 1, 4) + b"\0" * 64, 0.0),
    "half an answer": (GREETING + struct.pack("<Qi", 64, 4) + b"\0" * 59, 0.0),
    "an empty packet": (GREETING + struct.pack("<Q", 0), 0.0),
    "a packet of no code": (GREETING + struct.pack("<Qi", 0, 4), 0.0),
}


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_that_does_not_speak_as_one_is_hung_up_on(device: str) -> None:
    """TVM's client waited for it for ever."""
    answer, pause = DEVICES[device]
    patient = {"greeting": 1.0, "patience": 0.5}
    with tracker(answer, pause) as served, near(served, **patient) as line, suppress(ConnectionError):
        line.sendall(b"hello")
        left = len(GREETING)
        while left and (part := line.recv(left)):
            left -= len(part)
        line.sendall(b"a call")
        while line.recv(1 << 12):
            pass


@pytest.mark.parametrize("length", [0, 3, (1 << 26) + 1, 1 << 62])
def test_a_packet_of_no_length_that_one_has_is_not_waited_for(length: int) -> None:
    said = GREETING + struct.pack("<Qi", length, 4)
    with tracker(said) as served, near(served, greeting=30.0, patience=30.0) as line, suppress(ConnectionError):
        found = b""
        while part := line.recv(1 << 12):
            found += part
        assert len(found) < len(said)


@pytest.mark.parametrize("code", [0, 2, 3, 6, 7, 9, 10, -1])
def test_what_a_device_asks_is_not_passed_on(code: int) -> None:
    """TVM's client did it: a device that sends back what it is sent called functions of this process."""
    asked = struct.pack("<Qi", 8, code) + b"1234"
    with tracker(GREETING + asked) as served, near(served, greeting=30.0, patience=30.0) as line:
        found = b""
        with suppress(ConnectionError):
            while part := line.recv(1 << 12):
                found += part
        assert len(found) < len(GREETING) + 12  # not the whole code


def test_a_name_that_is_announced_too_long_is_not_waited_for() -> None:
    greeting = DEVICES["a name without end"][0]
    with tracker(greeting) as served, near(served, greeting=30.0, patience=30.0) as line, suppress(ConnectionError):
        assert len(line.recv(len(greeting))) < len(greeting)


@contextmanager
def near(served: Remote, *, greeting: float, patience: float) -> Iterator[socket.socket]:
    """A line to what ``served`` has, through the process that watches it."""
    with socket.create_connection(relayed("127.0.0.1", served.port, greeting=greeting, patience=patience)) as line:
        line.settimeout(30)
        yield line


def test_what_devices_answer_is_passed_on_however_long_they_are_asked_nothing() -> None:
    packets = struct.pack("<Qi", 7, 4) + b"abc" + struct.pack("<Qi", 4, 8) + struct.pack("<Qi", 5, 5) + b"d"
    with tracker(GREETING + packets) as served, near(served, greeting=5.0, patience=0.2) as line:
        found = b""
        while len(found) < len(GREETING + packets):
            found += line.recv(1 << 12)
        assert found == GREETING + packets
        line.settimeout(0.8)
        with pytest.raises(TimeoutError):  # no end of the line
            line.recv(1)


def test_where_nothing_listens_the_reason_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        relayed("127.0.0.1", port, greeting=1.0, patience=1.0)
