"""The matrix unit of x86 (AMX) as TIR statements.

In: numbers of tiles and places in memory. Out: statements that LLVM turns into one instruction each. Source: Intel 64
and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from tvm import tirx

ROWS: Final = 16
"""Of a tile: of the first operand, and of the result."""
COLUMNS: Final = 16
"""Of the result, whose elements have 32 bits."""
ROW_BYTES: Final = 64
"""Of each of the 16 rows of a register."""
OF_FLOATS: Final = ("+amx-tile", "+amx-bf16")
"""What LLVM calls the unit where it multiplies bfloat16."""
OF_BYTES: Final = ("+amx-tile", "+amx-int8")
"""What LLVM calls it where it multiplies bytes."""
CONFIGURATION: Final = ((16,), "uint32")
"""Shape and type of the buffer that :func:`configured` needs."""

_TILES: Final = 8
"""Registers."""
_PERMIT: Final = (158, 0x1023, 18)  # arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), see arch/x86/xstate of Linux


@functools.cache
def is_permitted() -> bool:
    """This process may use the unit: the CPU has it, and the system keeps its registers for each thread.

    Linux allows it to a process once and for all when it asks, which this does.
    """
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    try:
        return bool(ctypes.CDLL(None, use_errno=True).syscall(*map(ctypes.c_long, _PERMIT)) == 0)
    except (OSError, AttributeError):
        return False


def permitted() -> Any:
    """Asks the system for the unit, for all threads of the process that runs the kernel."""
    number, *arguments = (tirx.IntImm("int64", value) for value in _PERMIT)
    return tirx.Evaluate(tirx.call_extern("int64", "syscall", number, *arguments))


def configured(buffer: Any) -> list[Any]:
    """All tiles of their full size, for the thread that runs this. ``buffer`` of the kind :data:`CONFIGURATION`."""
    data = np.zeros(64, "uint8")
    data[0] = 1  # the palette
    data[16 : 16 + 2 * _TILES : 2] = ROW_BYTES
    data[48 : 48 + _TILES] = ROWS
    words = [tirx.IntImm("uint32", int(word)) for word in data.view("uint32")]
    stores = [tirx.BufferStore(buffer, word, [tirx.IntImm("int32", number)]) for number, word in enumerate(words)]
    return [*stores, _instruction("ldtilecfg", _address(buffer, [0]))]


def released() -> Any:
    """The thread's tiles are given back, so that the system need not save them."""
    return _instruction("tilerelease")


def cleared(tile: int) -> Any:
    """All elements of a tile are zero."""
    return _instruction("tilezero", _tile(tile))


def loaded_tile(tile: int, buffer: Any, indices: Sequence[Any], stride: int = ROW_BYTES) -> Any:
    """A tile from 1024 bytes in one piece, or in rows that are ``stride`` bytes apart."""
    return _instruction("tileloadd64", _tile(tile), _address(buffer, indices), tirx.IntImm("int64", stride))


def stored(tile: int, buffer: Any, indices: Sequence[Any]) -> Any:
    """A tile to 1024 bytes in one piece."""
    return _instruction("tilestored64", _tile(tile), _address(buffer, indices), tirx.IntImm("int64", ROW_BYTES))


def tile_product(result: int, rows: int, columns: int) -> Any:
    """Adds a product of tiles of bfloat16 to one of float32.

    Row ``i`` of the tile ``columns`` holds steps ``2 i`` and ``2 i + 1`` of every column, side by side.
    """
    return _instruction("tdpbf16ps", _tile(result), _tile(rows), _tile(columns))


def multiplied_bytes(result: int, rows: int, columns: int, *, has_signed_rows: bool) -> Any:
    """Adds a product of tiles of bytes, one of them signed, to one of int32.

    Row ``i`` of the tile ``columns`` holds steps ``4 i`` to ``4 i + 3`` of every column, side by side.
    """
    name = "tdpbsud" if has_signed_rows else "tdpbusd"
    return _instruction(name, _tile(result), _tile(rows), _tile(columns))


def _instruction(name: str, *arguments: Any) -> Any:
    return tirx.Evaluate(tirx.call_llvm_intrin("void", f"llvm.x86.{name}", *arguments))


def _tile(number: int) -> Any:
    return tirx.IntImm("int8", number)


def _address(buffer: Any, indices: Sequence[Any]) -> Any:
    return tirx.address_of(buffer[tuple(indices)])
