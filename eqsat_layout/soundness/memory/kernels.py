"""Every kernel of a built program, called by itself with operands between protected pages.

In: an :class:`Executable` and calls of its functions. Out: the first access to memory that is not the kernel's, in
words. The program runs in a child process; where that dies, others run up to the same kernel with one operand guarded
at a time, which says whose end was overrun, and whether by reading or by writing.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import relax

from eqsat_layout.errors import EqsatError
from eqsat_layout.graph.skeleton import data_of, kind_of
from eqsat_layout.soundness.memory.library import GuardedLibrary
from eqsat_layout.soundness.memory.pages import GuardedMemory, PageGuard, PagePlace
from eqsat_layout.targets.executable import Executable

PATIENCE: Final = 100
"""Seconds that a child may take."""
_SKIP: Final = 1
"""To TVM's virtual machine: the kernel has been run."""

Call = tuple[str, Sequence[Any]]
"""The name of a function, and what it is given."""


@dataclass(frozen=True)
class _KernelCall:
    """The ``number``-th call of a kernel; ``operands``: dtypes and shapes, results among them."""

    number: int
    kernel: str
    place: PagePlace
    operands: tuple[str, ...]


@dataclass(frozen=True)
class _Focus:
    """Only this operand of this call is guarded."""

    number: int
    operand: int
    guard: PageGuard


def memory_fault(executable: Any, calls: Sequence[Call]) -> str:
    """What a kernel does that it may not, in words; empty if nothing. :class:`EqsatError`: the program can't be run."""
    if not isinstance(executable, Executable):
        raise EqsatError("kernels can't be called one by one without a C compiler and a CPU of this kind")
    if not executable.library:
        return ""
    ended = _ended(executable, calls)
    if not ended.signal:
        return ended.fault
    name = signal.Signals(ended.signal).name
    if ended.last is None:
        return f"the program died of {name} before its first kernel"
    last = ended.last
    return f"kernel {last.kernel}, its operands {last.place.value}, died of {name}: {_blamed(executable, calls, last)}"


def _blamed(executable: Executable, calls: Sequence[Call], last: _KernelCall) -> str:
    found = []
    for number, operand in enumerate(last.operands):
        if _dies(executable, calls, last, _Focus(last.number, number, PageGuard.ACCESS)):
            writes = _dies(executable, calls, last, _Focus(last.number, number, PageGuard.WRITING))
            found.append(f"{'writes' if writes else 'reads'} outside of operand {number}, {operand}")
    operands = ", ".join(last.operands)
    return " and ".join(found) or f"outside of what it allocates, or of several of its operands {operands}"


def _dies(executable: Executable, calls: Sequence[Call], last: _KernelCall, focus: _Focus) -> bool:
    ended = _ended(executable, calls, focus)
    return bool(ended.signal) and ended.last == last


@dataclass(frozen=True)
class _Ended:
    """How a child ended: of which ``signal``, if any, in which call; or with which ``fault``."""

    signal: int
    last: _KernelCall | None
    fault: str


def _ended(executable: Executable, calls: Sequence[Call], focus: _Focus | None = None) -> _Ended:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _serve(executable, calls, focus, writer)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as pipe:
        said = [json.loads(line) for line in pipe]
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for one in said:
        if "error" in one:
            raise EqsatError(one["error"])
    begun = [one["call"] for one in said if "call" in one]
    last = _KernelCall(begun[-1][0], begun[-1][1], PagePlace(begun[-1][2]), tuple(begun[-1][3])) if begun else None
    return _Ended(max(0, -status), last, next((one["fault"] for one in said if "fault" in one), ""))


def _serve(executable: Executable, calls: Sequence[Call], focus: _Focus | None, pipe: int) -> None:
    """The child's work. It ends here whatever happens: nothing of the parent's is cleaned up twice."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)  # TVM prints the stack of what dies
    faulthandler.disable()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(PATIENCE)

    def say(**what: Any) -> None:
        os.write(pipe, (json.dumps(what) + "\n").encode())

    try:
        watcher = _Watcher(executable.library, focus, say)
        machine = relax.VirtualMachine(executable, tvm.cpu())
        machine.module["set_instrument"](watcher)
        for name, inputs in calls:
            machine[name](*inputs)
    except BaseException as error:  # whatever it is, the parent raises it
        say(error=f"{type(error).__name__}: {error}\n{''.join(traceback.format_tb(error.__traceback__)[-3:])}")
    finally:
        os._exit(0)


class _Watcher:
    """Called by TVM's virtual machine around each call; runs the kernels in its place."""

    def __init__(self, library: bytes, focus: _Focus | None, say: Callable[..., None]):
        self._library = GuardedLibrary(library, self._found)
        self._focus, self._say = focus, say
        self._number, self._kernel = -1, ""

    def __call__(self, _: Any, name: str, before: bool, __: Any, *args: Any) -> int:
        kernel = self._library.kernel(name)
        if not before or kernel is None:
            return 0
        self._number, self._kernel = self._number + 1, name
        results = [self._run(kernel, args, place) for place in PagePlace]
        for number, (one, other) in enumerate(zip(*results, strict=True)):
            if one != other:
                self._found(f"of operand {number}, {_said(args[number])}, what it makes depends on where operands lie")
        for arg, made in zip(filter(_is_tensor, args), results[0], strict=True):
            data_of(arg)[:] = made
        return _SKIP

    def _run(self, kernel: Any, args: Sequence[Any], place: PagePlace) -> list[bytes]:
        """The bytes of all tensors after a call whose operands lie there."""
        self._say(call=[self._number, self._kernel, place.value, list(map(_said, filter(_is_tensor, args)))])
        self._library.place = place
        tensors = [arg for arg in args if _is_tensor(arg)]
        given = list(map(data_of, tensors))
        memories = [GuardedMemory(len(data), place, self._guard(number)) for number, data in enumerate(given)]
        for memory, data in zip(memories, given, strict=True):
            memory.bytes[:] = data
        guarded = iter([_tensor_in(memory, tensor) for memory, tensor in zip(memories, tensors, strict=True)])
        kernel(*[next(guarded) if _is_tensor(arg) else arg for arg in args])
        for number, (memory, tensor) in enumerate(zip(memories, tensors, strict=True)):
            damage = memory.damage()
            if damage:
                self._found(f"of operand {number}, {_said(tensor)}, {damage}")
        made = [memory.bytes.tobytes() for memory in memories]
        for memory in memories:
            memory.free()
        return made

    def _guard(self, operand: int) -> PageGuard:
        if self._focus is None or self._focus.number != self._number:
            return PageGuard.ACCESS
        return self._focus.guard if self._focus.operand == operand else PageGuard.NOTHING

    def _found(self, text: str) -> None:
        self._say(fault=f"kernel {self._kernel}: {text}")


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _said(tensor: Any) -> str:
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


def _tensor_in(memory: GuardedMemory, like: Any) -> Any:
    raw = tvm_ffi.from_dlpack(memory.bytes, require_alignment=0, require_contiguous=True)
    return raw._create_view(*kind_of(like))
