"""Compiled programs in files: libraries, and programs for devices.

In: an executable, or the path of one. Out: a file that appears whole or not at all; the program in one, and its
interface.
"""

from __future__ import annotations

import os
import platform
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from eqsat_layout.errors import EqsatError
from eqsat_layout.notes import first_line, said_by
from eqsat_layout.session import runtime
from eqsat_layout.session.checksum import damage, seal
from eqsat_layout.session.interface import TELLS, Interface
from eqsat_layout.system.readable import read_bytes
from eqsat_layout.system.suffixes import LIBRARIES, PROGRAMS, ending_of, path_of
from eqsat_layout.targets.gpu.host.device_program import DeviceProgram, kind_of_program

_ELF: Final = struct.Struct("<18xH")
"""The head of such a file, as far as it says for which processor it is."""

_PROCESSORS: Final = {0x3E: "x86_64", 0xB7: "aarch64", 0xF3: "riscv64"}
"""As ELF numbers them, and as systems call them."""


def written_to(path: Path, executable: Any) -> None:
    """Under a new name first: a library that a process runs must not be written over."""
    check_library_path(path, suffix_of(executable))
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".saving") as folder:
            made = Path(folder) / path.name
            export(executable, made)
            os.replace(made, path)
    except OSError as error:
        raise EqsatError(f"{path}: {error.strerror or error}") from error
    except RuntimeError as error:
        raise EqsatError(f"{path}: can't be linked: {said_by(error)}") from error


def suffix_of(executable: Any) -> str:
    """What the name of its file ends in."""
    if isinstance(executable, Path):
        return ending_of(executable)
    return ".program" if isinstance(executable, DeviceProgram) else ".so"


def export(executable: Any, path: Path) -> None:
    """Written to a file that nobody reads yet. A file that was written before is copied."""
    if isinstance(executable, Path):
        shutil.copy(executable, path)
    elif isinstance(executable, DeviceProgram):
        executable.save(path)
    else:
        executable.export_library(str(path))
        seal(path)


def check_library_path(path: Path, suffix: str) -> None:
    """:class:`EqsatError` for a name that no file has whose kind has this one, or in a folder that is none."""
    known = LIBRARIES if suffix in LIBRARIES else PROGRAMS
    if path.suffix not in known:
        what = "library" if known is LIBRARIES else "program for a device"
        raise EqsatError(f"{path}: a {what}'s name ends in {', '.join(sorted(known))}")
    if not path_of(path).parent.is_dir():
        raise EqsatError(f"{path}: No such file or directory")
    if path.is_dir():
        raise EqsatError(f"{path}: Is a directory")


def opened_program(path: Path, *, is_whole: bool = False) -> tuple[Any, Interface]:
    """The program in a file that :func:`written_to` wrote. Opening a library runs code of it.

    ``is_whole``: it is known that the file is as it was written, on this machine.
    """
    if not path.is_file():
        raise EqsatError(f"{path}: {'Is a directory' if path.is_dir() else 'there is no such file'}")
    if ending_of(path) in PROGRAMS:
        return _opened_program(path)
    if not is_whole:
        _check_file(path)
    return _opened_library(path)


def _opened_program(path: Path) -> tuple[DeviceProgram, Interface]:
    from eqsat_layout.targets.registry import target  # planning, which a library is opened without

    try:
        data = read_bytes(path)
    except OSError as error:
        raise EqsatError(f"{path}: {error.strerror or error}") from error
    if not data:
        raise EqsatError(f"{path}: the file is empty")
    try:
        program: DeviceProgram = target(kind_of_program(data)).loaded(memoryview(data))
        return program, told_by(program)
    except EqsatError as error:
        raise EqsatError(f"{path}: {error}") from error
    except (KeyError, ValueError) as error:
        raise EqsatError(f"{path}: does not say what it takes: Session.save writes such") from error


def _opened_library(path: Path) -> tuple[Any, Interface]:
    with tempfile.TemporaryDirectory() as folder:
        # the system takes a file for the one of that name that it has loaded, even if it was replaced; TVM's own
        # load_module follows links
        link = Path(folder) / f"{os.path.basename(folder)}{ending_of(path)}"
        link.symlink_to(path.absolute())
        try:
            library = runtime.opened_library(str(link))
        except (RuntimeError, ValueError, OSError) as error:
            reason = first_line(error).rpartition(f"{link}: ")[2]  # what the system says, behind TVM's words and names
            raise EqsatError(f"{path}: can't be loaded: {reason}") from error
    if not library.implements_function("vm_load_executable"):
        raise EqsatError(f"{path}: holds no program for TVM's virtual machine")
    try:
        interface = told_by(library)
    except (AttributeError, ValueError) as error:
        raise EqsatError(
            f"{path}: does not say what it takes: Session.save or `eqsat-layout compile` write such"
        ) from error
    own = _instructions()
    if own and (missing := [name for name in interface.needs if name not in own]):
        raise EqsatError(f"{path}: is for a processor with {', '.join(missing)}, which this machine does not have")
    return library, interface


def _instructions() -> frozenset[str]:
    """The sets of instructions of an x86 processor, as Linux calls them; none where it does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), ()))


def _check_file(path: Path) -> None:
    """:class:`EqsatError` for a library that is not as it was written, and for one of another processor."""
    try:
        with path.open("rb") as file:
            head = file.read(_ELF.size)
        why = damage(path)
    except OSError as error:
        raise EqsatError(f"{path}: {error.strerror or error}") from error
    if not head:
        raise EqsatError(f"{path}: the file is empty")
    if why is not None:
        raise EqsatError(f"{path}: can't be loaded: {why}")
    own = platform.machine()
    processor = _ELF.unpack(head)[0] if len(head) == _ELF.size and head.startswith(b"\x7fELF\x02\x01") else None
    if processor is not None and own in _PROCESSORS.values() and _PROCESSORS.get(processor) != own:
        there = _PROCESSORS.get(processor, f"processors with ELF's number {processor}")
        raise EqsatError(f"{path}: can't be loaded: it is for {there}, and this machine is {own}")


def told_by(executable: Any) -> Interface:
    """What a program says that it takes and gives; AttributeError or ValueError for one that does not, KeyError for a
    device's."""
    if isinstance(executable, DeviceProgram):
        return Interface.from_json(executable.constant_of(TELLS).decode())
    told = runtime.virtual_machine(executable)[TELLS]
    return Interface.from_json(bytes(np.from_dlpack(told())).decode())
