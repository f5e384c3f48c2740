"""Devices elsewhere, lent by TVM's RPC tracker, as a place to measure kernels.

In: the address of a tracker and the key of a device. Out: a :class:`~eqsat_layout.tuning.probe.KernelRunner`. Kernels
are built here and sent there, one session each, so that others get the device too and a kernel that hangs is stopped.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy.typing as npt
import tvm
from tvm import relax, rpc
from tvm.rpc import base
from tvm.support import cc
from tvm.target import codegen

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.protocol import Target
from eqsat_layout.targets.registry import target as target_of
from eqsat_layout.tuning.probe import Loaded
from eqsat_layout.tuning.relay import relayed
from eqsat_layout.tuning.remote_programs import LOST, RemoteKernel, RemoteProgram, closed, failure, reason_of

_ANSWER: Final = 5.0
"""Seconds within which a tracker answers."""
_LONGEST_ANSWER: Final = 1 << 20
"""Bytes that a tracker says at a time."""
_NO_ANSWER: Final = (ArithmeticError, ValueError, TypeError, KeyError, AttributeError, RecursionError, struct.error)
"""What is raised where an answer is not as a tracker's."""
_PORT: Final = re.compile(r"[0-9]{1,5}")
_CPU: Final = "llvm"
_CPU_DEVICE: Final = 1
"""DLPack's number."""
_POLL: Final = 0.05
_MOST_THREADS: Final = 4096
_CPU_NAME: Final = re.compile(r"[\w.+-]{1,64}")


@dataclass(frozen=True)
class Remote:
    """A device that the RPC tracker at ``host``:``port`` lends by the name ``key``.

    ``patience``: seconds to wait until nobody else has it. ``kernel_seconds``: what one kernel may take there, after
    which the device gives it up. ``cache_bytes``: the device's last cache, which can't be asked for.
    """

    host: str
    port: int
    key: str
    patience: float = 60.0
    kernel_seconds: float = 60.0
    cache_bytes: int = 32 << 20

    @staticmethod
    def parse(address: str, key: str | None) -> Remote:
        """From ``HOST:PORT`` and a key; :class:`TargetError` if these are none."""
        host, colon, port = address.rpartition(":")
        if not colon or not host or not _PORT.fullmatch(port) or not 0 < int(port) < 1 << 16:
            raise TargetError(f"the address of an RPC tracker is HOST:PORT, not {address!r}")
        if not key:
            raise TargetError(f"which device of the RPC tracker at {address}? give its key")
        return Remote(host.strip("[]"), int(port), key)

    def runner(self, target: Any = None, *, approx: bool = True) -> RemoteRunner:
        """The device as a place to run kernels. What ``target`` does not say of it (CPU, threads) it is asked.

        ``approx`` as for :func:`~eqsat_layout.targets.registry.target`.

        Raises :class:`TargetError` where there is no tracker, no such device, its runtime has no device of the target's
        kind, or nobody knows what it is.
        """
        checked = target_of(target, approx=approx)  # refuses what is no target
        session = self.session()
        try:
            said = _self_description(session)
            has_kind = checked.tvm.get_target_device_type() == _CPU_DEVICE or session.device(checked.kind).exist
        except LOST as error:
            raise TargetError(f"{self}: was lost while it was asked what it is: {reason_of(error)}") from error
        finally:
            closed(session)
        if not has_kind:
            raise TargetError(f"{self}: TVM's runtime finds no {checked.kind} device there")
        if checked.kind != _CPU:
            host = {"kind": _CPU} | {name: said[name] for name in ("mcpu", "mtriple") if name in said}
            return RemoteRunner(self, checked.on_host(host).at(f"RPC device {self.key}"))
        given = dict(tvm.target.Target(_plain(target)).attrs)
        config = {"kind": _CPU} | said | given
        if "mcpu" not in config:
            raise TargetError(f"{self}: does not say what CPU it has; name it in the target: {str(checked.tvm)!r}")
        return RemoteRunner(self, target_of(config, approx=approx).at(f"RPC device {self.key}"))

    def session(self) -> Any:
        """A session with the device, once nobody else has it. :class:`TargetError` where none can be had."""
        url, port, match = self._lent()
        try:
            near = relayed(url, port, greeting=_ANSWER, patience=self.kernel_seconds + 2 * _ANSWER)
            return rpc.connect(*near, match, session_timeout=self.kernel_seconds)
        except LOST as error:
            raise TargetError(f"{self}: does not answer at {url}:{port}: {reason_of(error)}") from error

    def _lent(self) -> tuple[str, int, str]:
        """The address that the tracker gives for the device, and the key that it is asked with.

        The tracker is spoken to here, not through TVM's own client, which waits for a minute where nothing listens and
        for ever where nobody has the key.
        """
        try:
            with socket.create_connection((self.host, self.port), timeout=_ANSWER) as line:
                line.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
                if struct.unpack("<i", _received(line, 4, time.monotonic() + _ANSWER)) != (base.RPC_TRACKER_MAGIC,):
                    raise TargetError(f"what listens at {self.host}:{self.port} is no RPC tracker")
                self._wait(line)
                url, port, match = _asked(line, [base.TrackerCode.REQUEST, self.key, "", 1], self.patience)
                return (*_place(str(url), int(port)), str(match))
        except TargetError:
            raise
        except (OSError, *_NO_ANSWER) as error:
            raise TargetError(f"no RPC tracker answers at {self.host}:{self.port}: {reason_of(error)}") from error

    def _wait(self, line: socket.socket) -> None:
        """Until the device is free."""
        end = time.monotonic() + self.patience
        while True:
            summary = _asked(line, [base.TrackerCode.SUMMARY])
            keys = sorted({str(server["key"]).removeprefix("server:") for server in summary["server_info"]})
            if self.key not in keys:
                others = f"it has {', '.join(map(repr, keys))}" if keys else "it has none at all"
                raise TargetError(f"the RPC tracker at {self.host}:{self.port} has no device {self.key!r}; {others}")
            if summary["queue_info"].get(self.key, {}).get("free", 0) > 0:
                return
            if time.monotonic() > end:
                raise TargetError(f"{self}: others have had it for {self.patience:g} s")
            time.sleep(_POLL)

    def __str__(self) -> str:
        return f"device {self.key!r} of the RPC tracker at {self.host}:{self.port}"


class RemoteRunner:
    """Runs kernels on a :class:`Remote`, timed by its own clock."""

    def __init__(self, remote: Remote, target: Target):
        """``target`` says what CPU the device has, and how many threads."""
        self.remote, self.target = remote, target
        self.cache_bytes = remote.cache_bytes

    def load(self, executable: Any, operands: Sequence[npt.NDArray[Any]]) -> Loaded:
        """Sends the program there; linked here where the device is of our kind, else there."""
        session = self.remote.session()
        name = "kernel.so" if self._links_here() else "kernel.tar"
        alone = self.target.alone(executable)
        try:
            with tempfile.TemporaryDirectory() as directory:
                path = Path(directory) / name
                sent = executable if alone is None else tvm.runtime.Executable(alone.module)
                sent.export_library(str(path))
                session.upload(str(path))
            device = session.cpu(0) if alone is None else session.device(self.target.kind)
            module = session.load_module(name)
            if alone is not None:
                return RemoteKernel(self.remote, session, device, module, alone, operands)
            machine = relax.VirtualMachine(module, device)
            return RemoteProgram(self.remote, session, machine, [tvm.runtime.tensor(a, device) for a in operands])
        except LOST as error:
            raise failure(self.remote, session, error) from error
        except BaseException:
            closed(session)
            raise

    def _links_here(self) -> bool:
        host = self.target.tvm.host or self.target.tvm
        triple = str(dict(host.attrs).get("mtriple") or codegen.llvm_get_system_triple())
        return triple.split("-")[0] == str(codegen.llvm_get_system_triple()).split("-")[0] and bool(cc.get_cc())


def _self_description(session: Any) -> dict[str, Any]:
    """What the device says of itself, in the words of a target. It may hold a runtime only, which knows little."""
    found: dict[str, Any] = {}
    with suppress(AttributeError):  # it has no such function
        threads = int(session.get_function("runtime.NumThreads")())
        if 0 < threads <= _MOST_THREADS:
            found["num-cores"] = threads
    with suppress(AttributeError):
        triple = str(session.get_function("target.llvm_get_system_triple")())
        cpu = str(session.get_function("target.llvm_get_system_cpu")())
        if not (_CPU_NAME.fullmatch(cpu) and _CPU_NAME.fullmatch(triple)):
            return found
        found["mcpu"] = cpu
        if triple.split("-")[0] != str(codegen.llvm_get_system_triple()).split("-")[0]:
            found["mtriple"] = triple
    return found


def _asked(line: socket.socket, question: list[Any], patience: float = _ANSWER) -> Any:
    """The answer of a tracker, which is not trusted to be short, whole or soon."""
    base.sendjson(line, question)
    end = time.monotonic() + patience
    (size,) = struct.unpack("<i", _received(line, 4, end))
    if not 0 < size <= _LONGEST_ANSWER:
        raise ValueError(f"it announces an answer of {size} bytes")
    code, answer = json.loads(_received(line, size, end))
    if code != base.TrackerCode.SUCCESS:
        raise ValueError(f"it answers {answer!r}")
    return answer


def _place(host: str, port: int) -> tuple[str, int]:
    """The two, if they are a place; of a number that is no port the system takes the last 16 bits."""
    if not (host.isascii() and host.isprintable() and 0 < len(host) < 256 and 0 < port < 1 << 16):
        raise ValueError(f"it names no place: {host[:80]!r}, {port}")
    return host, port


def _received(line: socket.socket, size: int, end: float) -> bytes:
    """So many bytes until then; each one that trickles in does not start the time anew."""
    data = bytearray()
    while len(data) < size:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        line.settimeout(left)
        part = line.recv(min(size - len(data), 1 << 16))
        if not part:
            raise ConnectionError("it hung up")
        data += part
    return bytes(data)


def _plain(target: Any) -> Any:
    return "llvm" if target is None else dict(target) if isinstance(target, Mapping) else target
