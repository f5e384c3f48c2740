"""Memory between pages that nobody may touch.

In: how many bytes, where in their pages they lie, what the pages allow. Out: a :class:`GuardedMemory`. Who reads or
writes behind its last byte (or before its first) dies; bytes of its own pages that are not its own are checked instead.
"""

from __future__ import annotations

import ctypes
import mmap
from enum import Enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_PAGE: Final = mmap.PAGESIZE
_CANARY: Final = 0xA5
_NOTHING: Final = 0
_READ: Final = mmap.PROT_READ
_READ_WRITE: Final = mmap.PROT_READ | mmap.PROT_WRITE


class PagePlace(Enum):
    """Where in their pages the bytes lie."""

    START = "at the start of a page"
    END = "at the end of a page"


class PageGuard(Enum):
    """What the pages around forbid."""

    ACCESS = _NOTHING
    WRITING = _READ
    NOTHING = _READ_WRITE


class GuardedMemory:
    """``size`` bytes. ``alignment``: of the first; at the end of a page there may be fewer spare bytes than that."""

    def __init__(self, size: int, place: PagePlace, guard: PageGuard = PageGuard.ACCESS, alignment: int = 1):
        inner = max(1, -(-size // _PAGE)) * _PAGE
        self._length = inner + 2 * _PAGE
        base = _libc.mmap(None, self._length, _READ_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if base == ctypes.c_void_p(-1).value:
            raise MemoryError(f"no pages for {size} bytes")
        self._base: int = base
        for around in (base, base + _PAGE + inner):
            if _libc.mprotect(around, _PAGE, guard.value):
                raise OSError(ctypes.get_errno(), "pages can't be protected")
        self._pages = _bytes_at(base + _PAGE, inner)
        self._pages[:] = _CANARY
        self._first = (inner - size) // alignment * alignment if place is PagePlace.END else 0
        self._last = self._first + size
        self.address: int = base + _PAGE + self._first
        self.bytes = self._pages[self._first : self._last]

    def damage(self) -> str:
        """Which bytes of its pages that are not its own were written, in words; empty if none."""
        before, behind = self._pages[: self._first], self._pages[self._last :]
        if (before != _CANARY).any():
            return f"the byte {self._first - int(np.nonzero(before != _CANARY)[0][-1])} before its first is written"
        if (behind != _CANARY).any():
            return f"the byte {int(np.nonzero(behind != _CANARY)[0][0]) + 1} behind its last is written"
        return ""

    def free(self) -> None:
        """Gives the pages back; nothing may look at :attr:`bytes` any more."""
        _libc.munmap(self._base, self._length)


def _bytes_at(address: int, size: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(address)), dtype=np.uint8)


def _of_the_system() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


_libc: Final = _of_the_system()
