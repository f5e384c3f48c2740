"""Tensors that an ONNX model keeps in other files.

In: a model without them. Out: the same with them, or :class:`UnsafeLocationError` for a file that is not beside it.
Caches of model hubs hold links: the file of a model and that of its tensors lie beside each other where these lead, or
the model alone is a link.
onnx reads no tensors through links.
"""

from __future__ import annotations

import math
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.onnx.messages import messages_of

_WIDEST: Final = 16
"""Bytes of the widest elements."""
_DIGITS: Final = 20
"""Too many for a number of bytes."""


class UnsafeLocationError(ValueError):
    """A model that names a file elsewhere."""


def read_external_tensors(model: Any, path: Path) -> None:
    """Puts what lies beside the file of a model, which is at ``path``, into it."""
    check_locations(model, path.absolute().parent, path.resolve().parent)
    for tensor in messages_of(model):
        said = _said_of(tensor)
        if said and tensor.data_location == tensor.EXTERNAL:
            with external_file(said["location"], path).open("rb") as file:
                file.seek(int(said.get("offset", 0)))
                tensor.raw_data = file.read(int(said.get("length", -1)))
            tensor.data_location = tensor.DEFAULT
            del tensor.external_data[:]


def external_file(location: str, path: Path) -> Path:
    """The file of that name beside the model at ``path``, or else beside what that leads to."""
    return _place_of(location, path.absolute().parent, path.resolve().parent)


def _place_of(location: str, folder: Path, home: Path | None) -> Path:
    place = folder / location
    return place if home is None or place.exists() or place.is_symlink() else home / location


def check_locations(model: Any, folder: Path, home: Path | None = None) -> None:
    """Raises where a tensor of the ONNX model is said to lie outside of ``folder``, or in what can't be it.

    ``home``: where the file of the model is, links followed; those of tensors may lie or lead there.

    A file with holes in it may be larger than memory and take no place on disk: no more is read than the elements may
    take, which are of 16 bytes at most.
    """
    for location in locations(model):
        check_location(location, folder, home)
    for tensor in messages_of(model):
        said = _said_of(tensor)
        if not said:
            continue
        path = _place_of(said.get("location", ""), folder, home)
        if not path.is_file():
            what = "that is no file" if path.exists() else "there is no such file"
            raise FileNotFoundError(f"its tensor {tensor.name!r} is in {said.get('location', '')!r} beside it: {what}")
        size = path.stat().st_size
        offset, length = (_count(tensor.name, key, said[key]) if key in said else None for key in ("offset", "length"))
        taken = size - (offset or 0) if length is None else min(size, length)
        if taken > _WIDEST * (math.prod(tensor.dims) + 1):
            raise UnsafeLocationError(f"its tensor {tensor.name!r} is said to be {taken} bytes of {path.name!r}")


def check_is_complete(model: Any) -> None:
    """:class:`EqsatError` for a model in memory without the tensors of its files: nobody knows where these are."""
    for tensor in messages_of(model):
        said = _said_of(tensor)
        if said and tensor.data_location == tensor.EXTERNAL:
            raise EqsatError(
                f"tensor {tensor.name!r} is in the file {said.get('location', '')!r}, which was not loaded: give the "
                "path of the model, or load it with onnx.load(path)"
            )


def _said_of(message: Any) -> dict[str, str]:
    """Where a tensor lies; nothing of one that the model holds, and of what is no tensor."""
    return {str(entry.key): str(entry.value) for entry in getattr(message, "external_data", ())}


def _count(name: str, key: str, text: str) -> int:
    """A number of bytes; Python and others read more than digits as one: signs, spaces, underscores."""
    if not (text.isascii() and text.isdecimal() and len(text) < _DIGITS):
        raise UnsafeLocationError(f"the {key} of its tensor {name!r} is said to be {text[:_DIGITS]!r}")
    return int(text)


def locations(model: Any) -> list[str]:
    """The files that the model names, each once, as it names them."""
    entries = (entry for message in messages_of(model) for entry in getattr(message, "external_data", ()))
    return list(dict.fromkeys(str(entry.value) for entry in entries if entry.key == "location"))


def check_location(location: str, folder: Path, home: Path | None = None) -> None:
    """Raises unless it is a relative path that stays in ``folder``, links followed, or leads to the folder ``home``."""
    parts = {*PurePosixPath(location).parts, *PureWindowsPath(location).parts}
    is_elsewhere = (
        not location or ".." in parts or PurePosixPath(location).is_absolute() or PureWindowsPath(location).anchor
    )
    if is_elsewhere or "\0" in location or not _is_beside(_place_of(location, folder, home), folder, home):
        raise UnsafeLocationError(f"its tensors are said to lie in {location!r}, which is not beside the model")


def _is_beside(place: Path, folder: Path, home: Path | None) -> bool:
    """A file that a link in ``folder`` leads to has to lie in ``home`` itself; else it may lie in folders inside."""
    own, place = (folder if place.is_relative_to(folder) else home or folder).resolve(), place.resolve()
    return place.is_relative_to(own) or place.parent == home
