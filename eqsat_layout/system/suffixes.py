"""What names of files tell.

In: a path. Out: its suffix, or an error for what is no path; no reader is imported for them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from eqsat_layout.errors import EqsatError

LIBRARIES: Final = frozenset({".so", ".dylib", ".dll"})
"""Of what is compiled already, for this machine's processor."""

PROGRAMS: Final = frozenset({".program"})
"""Of what is compiled for a device: data."""

COMPILED: Final = LIBRARIES | PROGRAMS


def ending_of(path: Path) -> str:
    """The end of its name in small letters: ``.onnx`` of ``NET.ONNX``."""
    return path.suffix.lower()


def path_of(given: str | os.PathLike[str]) -> Path:
    """:class:`EqsatError` for what no file is called, and where the system does not say whether there is one: in a
    folder that is closed to its user, or of a name that is too long."""
    name = os.fspath(given)
    if not name or "\0" in name:
        raise EqsatError(f"{name!r} is no path of a file")
    path = Path(name)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise EqsatError(f"{path}: {error.strerror}") from error
    return path


def beside(source: Path, suffix: str) -> Path:
    """``source`` with another suffix; :class:`EqsatError` where it has no name, as "." and "/"."""
    if not source.name:
        raise EqsatError(f"{source}: Is a directory")
    return source.with_suffix(suffix)


def check_is_source(path: Path) -> None:
    """:class:`EqsatError` for what is compiled already."""
    if ending_of(path) in COMPILED:
        raise EqsatError(
            f"{path}: is compiled already; open it with eqsat_layout.Session, or give the model's own file"
        )
