"""PoCL as pip brings it, on CPUs that are newer than it.

In: a device of PoCL 3.0. Out: whether it was mended. It asks its LLVM 14 for the name of the CPU; for a CPU that this
does not know the answer is "generic", which its own compiler refuses ("unknown target CPU 'generic'"), and no option
or environment variable overrides it. A ``cl_device_id`` is the address of PoCL's own record of the device, so the name
in it is replaced by that of a CPU with the same instructions.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from pathlib import Path
from typing import Any, Final

_PLATFORM: Final = "Portable Computing Language"
_REFUSED: Final = b"generic\0"
_RECORD: Final = 4096
"""Bytes of the record that are looked through."""
_CPUS: Final = (("avx512f", b"skylake-avx512"), ("avx2", b"x86-64-v3"), ("sse2", b"x86-64"))
"""By a flag that the CPU has, the best first."""

_names: Final[list[Any]] = []
"""What records point to lives as long as the process."""


def mend(device: Any) -> bool:
    """Gives the device's record a name that its compiler knows, if it has none."""
    if device.platform.name != _PLATFORM or not sys.platform.startswith("linux"):
        return False
    place = _place_of_name(int(device.int_ptr))
    cpu = _cpu()
    if place is None or cpu is None:
        return False
    _names.append(ctypes.create_string_buffer(cpu))
    ctypes.c_void_p.from_address(place).value = ctypes.addressof(_names[-1])
    return True


def _place_of_name(record: int) -> int | None:
    """The address of the pointer to the name that is refused; read through the kernel, which checks addresses."""
    with open("/proc/self/mem", "rb", buffering=0) as memory:

        def read(address: int, size: int) -> bytes:
            try:
                memory.seek(address)
                return memory.read(size)
            except (OSError, ValueError, OverflowError):
                return b""

        data = read(record, _RECORD)
        for offset in range(0, len(data) - 7, 8):
            (pointer,) = struct.unpack_from("Q", data, offset)
            if pointer and read(pointer, len(_REFUSED)) == _REFUSED:
                return record + offset
    return None


def _cpu() -> bytes | None:
    flags = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), "")
    return next((name for flag, name in _CPUS if flag in flags.split()), None)
