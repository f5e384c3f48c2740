"""Trackers, databases and pipes: what they give is data or nothing, and nobody waits for it for ever."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eqsat_layout.cost.database import Database
from eqsat_layout.egraph.rules import read_all
from eqsat_layout.errors import RuleError, TargetError
from eqsat_layout.readers.modules import FileError, read_module
from eqsat_layout.tuning import remote
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
