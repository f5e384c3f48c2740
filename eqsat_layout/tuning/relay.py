"""A line to an RPC server that does not wait for ever, held by a process of its own.

In: a place where a server is said to be. Out: a place of this machine that TVM's client connects to: what it says there
is passed on to the server, and what the server answers is passed back. TVM's client itself reads from a server that
says nothing until that hangs up, makes room for whatever length it announces, and does what it is asked to. Here a
server that does not say who it is in time, or says it at length, or does not answer a call, or asks for anything, is
hung up on. A thread can't do it: some of TVM's calls let no other thread of Python run while they wait. Run as a
program, this file imports nothing else.
"""

from __future__ import annotations

import select
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Final

_NEAR: Final = "127.0.0.1"
_PART: Final = 1 << 18
_LONGEST_NAME: Final = 1 << 12
_LONGEST_PACKET: Final = 1 << 26
"""Of handles and times, which is all that measuring asks for."""
_SLOWEST: Final = 1e5
"""Bytes a second, at which long answers come."""
_HEAD: Final = struct.Struct("<ii")
"""A number that stands for what the server thinks of the client's key, and how long its own is."""
_PACKET: Final = struct.Struct("<Qi")
"""How long what comes behind it is, which begins with a code."""
_CODE_BYTES: Final = 4
_ANSWERS: Final = (4, 5, 8)
"""Codes of TVM's protocol (rpc_protocol.h): a result, an error, a copy that is done. One says goodbye, others ask."""
_SHUTDOWN: Final = 1


def relayed(host: str, port: int, *, greeting: float, patience: float) -> tuple[str, int]:
    """A place to connect to, once. ``greeting``: seconds until the server has said who it is; ``patience``: those that
    it may be silent while a call waits for it. ``OSError`` where nothing listens."""
    command = [sys.executable, "-I", __file__, host, str(port), str(greeting), str(patience)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
    )  # it ends when one of its lines does
    assert process.stdout is not None
    with process.stdout as told:
        said = told.readline().strip()
    threading.Thread(target=process.wait, daemon=True).start()
    if not said.isdecimal():
        raise OSError(said or "the process that holds the line ended")
    return _NEAR, int(said)


def _serve(host: str, port: int, greeting: float, patience: float) -> None:
    try:
        server = socket.create_connection((host, port), timeout=greeting)
    except OSError as error:
        print(error, flush=True)
        return
    listener = socket.create_server((_NEAR, 0), backlog=1)
    print(listener.getsockname()[1], flush=True)
    with listener, server, suppress(OSError):
        listener.settimeout(greeting)
        client, _ = listener.accept()
        with client:
            listener.close()
            for line in (client, server):
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _Line(client, server, time.monotonic() + greeting, patience).run()


class _Line:
    """Passes on what either says. ``_until``: when the server has to have said what is waited for, or None."""

    def __init__(self, client: socket.socket, server: socket.socket, until: float, patience: float) -> None:
        self._client, self._server, self._patience = client, server, patience
        self._until: float | None = until
        self._greeting: bytearray | None = bytearray()
        self._head = bytearray()
        self._left = self._code = 0  # bytes of the packet that the server is at, and what it is

    def run(self) -> None:
        while True:
            left = None if self._until is None else self._until - time.monotonic()
            if left is not None and left <= 0:
                return
            ready, _, _ = select.select([self._client, self._server], [], [], left)
            for line in ready:
                part = line.recv(_PART)
                if not part or (line is self._server and not self._is_fit(part)):
                    return
                other = self._server if line is self._client else self._client
                other.settimeout(self._patience)
                other.sendall(part)
                if line is self._client and self._greeting is None:
                    self._until = time.monotonic() + self._patience

    def _is_fit(self, part: bytes) -> bool:
        """Whether what the server says is said as one does; the time for it does not start anew with each byte."""
        if self._greeting is None:
            return self._is_of_packets(part)
        self._greeting += part
        if len(self._greeting) < _HEAD.size:
            return True
        _, length = _HEAD.unpack_from(self._greeting)
        if not 0 <= length <= _LONGEST_NAME:
            return False
        end = _HEAD.size + length
        if len(self._greeting) < end:
            return True
        rest = bytes(self._greeting[end:])
        self._greeting = self._until = None
        return self._is_of_packets(rest)

    def _is_of_packets(self, part: bytes) -> bool:
        """Each answers a call, or says goodbye. At the end of an answer, nothing is waited for."""
        while part:
            if self._left:
                taken = min(self._left, len(part))
                self._left -= taken
                part = part[taken:]
            else:
                taken = _PACKET.size - len(self._head)
                self._head += part[:taken]
                part = part[taken:]
                if len(self._head) < _PACKET.size:
                    return True
                length, self._code = _PACKET.unpack(self._head)
                self._head.clear()
                if not _CODE_BYTES <= length <= _LONGEST_PACKET or self._code not in (*_ANSWERS, _SHUTDOWN):
                    return False
                self._left = length - _CODE_BYTES
                if self._until is not None:
                    self._until += length / _SLOWEST
            if not self._left and self._code in _ANSWERS:
                self._until = None
        return True


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
