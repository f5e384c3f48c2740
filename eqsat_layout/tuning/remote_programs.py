"""Programs on a device elsewhere, and how long they take there.

In: a session of TVM's RPC, what was loaded in it, and operands. Out: :class:`~eqsat_layout.tuning.probe.Loaded`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy.typing as npt
import tvm
from tvm.error import RPCError

from eqsat_layout.errors import ILL_TYPED, EqsatError, TargetError
from eqsat_layout.maps import GLOBAL
from eqsat_layout.notes import first_line
from eqsat_layout.targets.protocol import Alone
from eqsat_layout.tuning.probe import Runs

LOST: Final = (*ILL_TYPED, OSError)
"""What TVM raises for whatever fails over there, or on the way; linking for the device fails with the same."""
_RPC_HEAD: Final = "Error caught from RPC call:"


class Lender(Protocol):
    """What lends sessions with the device."""

    def session(self) -> Any:
        """Another one; :class:`TargetError` where none can be had."""
        ...


@dataclass(frozen=True)
class RemoteProgram:
    """Run by TVM's virtual machine on a CPU."""

    remote: Lender
    session: Any
    machine: Any
    operands: Sequence[Any]

    def runs(self, function: str, sets: int) -> Runs:
        device = self.session.cpu(0)
        saved = f"{function}_timed"
        with _failures_said(self.remote, self.session):
            arguments = [copied(a, device) for _ in range(sets) for a in self.operands]
            self.machine.save_function(function, saved, *arguments, include_return=False)

        def run(count: int) -> list[float]:
            if count < 1:
                return []
            with _failures_said(self.remote, self.session):
                timer = self.machine.time_evaluator(saved, device, number=1, repeat=count)
                return list(map(float, timer().results))

        return run

    def close(self) -> None:
        closed(self.session)


@dataclass(frozen=True)
class RemoteKernel:
    """One kernel by itself, on the same operands each time: caches of such devices are small."""

    remote: Lender
    session: Any
    device: Any
    module: Any
    alone: Alone
    operands: Sequence[npt.NDArray[Any]]

    def runs(self, function: str, sets: int) -> Runs:
        """What ``sets`` runs take, from the time of one."""
        with _failures_said(self.remote, self.session):
            tensors = [self._made(number, *one) for number, one in enumerate(self.alone.tensors)]

        def run(count: int) -> list[float]:
            if count < 1:
                return []
            with _failures_said(self.remote, self.session):
                timer = self.module.time_evaluator(self.alone.name, self.device, number=1, repeat=count)
                return [float(seconds) * sets for seconds in timer(*tensors).results]

        return run

    def _made(self, number: int, shape: Sequence[int], dtype: str, scope: str) -> Any:
        made = tvm.runtime.empty(shape, dtype, self.device, None if scope == GLOBAL else scope)
        return made.copyfrom(self.operands[number]) if number < len(self.operands) else made

    def close(self) -> None:
        closed(self.session)


def failure(remote: Lender, session: Any, error: Exception) -> EqsatError:
    """What to say of an error that ended a session: :class:`TargetError` if the device is gone with it.

    It is asked for another session: a kernel may have brought only its own one down.
    """
    closed(session)
    try:
        closed(remote.session())
    except TargetError as gone:
        return TargetError(f"the connection to {remote} was lost ({reason_of(error)}): {gone}")
    return EqsatError(f"failed on {remote}: {reason_of(error)}")


@contextmanager
def _failures_said(remote: Lender, session: Any) -> Iterator[None]:
    """What fails over there meanwhile is raised as :func:`failure` says it."""
    try:
        yield
    except LOST as error:
        raise failure(remote, session, error) from error


def closed(session: Any) -> None:
    """Ends a session now, not when the last tensor of it is collected: until then nobody else has the device."""
    with suppress(*LOST):  # it may be lost already
        session.get_function("CloseRPCConnection")()


def copied(tensor: Any, device: Any) -> Any:
    """Another copy, made over there."""
    copy = tvm.runtime.empty(tensor.shape, tensor.dtype, device)
    tensor.copyto(copy)
    return copy


def reason_of(error: BaseException) -> str:
    """What an error says, in one line; of one over there what it said over there."""
    there = str(error).partition(_RPC_HEAD)[2]
    return first_line(RPCError(there) if there else error)
