"""What a session is run with, checked against what its program takes.

In: values by names. Out: tensors in the program's order, or an error that names the input, what was expected and what
came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm_ffi

from eqsat_layout.errors import InputError, did_you_mean
from eqsat_layout.session.extents import check_not_negative
from eqsat_layout.session.interface import Interface, TensorSpec, type_text
from eqsat_layout.session.tensors import Staging, serves_as_input, tensor_of
from eqsat_layout.sources.ranges import SizeRange, outside


def fed_tensors(feed: Any, interface: Interface, staging: Staging) -> list[Any]:
    """One tensor for each input, which may be of ``staging``; a symbol is one size wherever it stands."""
    specs, any_address = interface.inputs, interface.any_address
    if not isinstance(feed, Mapping):
        raise InputError(f"inputs must be a dictionary by names, got {type(feed).__name__}")
    if len(feed) != len(specs) or any(spec.name not in feed for spec in specs):
        check_names(list(feed), [spec.name for spec in specs], "input")
    known: dict[str, tuple[int, str]] = {}
    tensors: list[Any] = []
    for spec in specs:
        if spec.name not in feed:
            raise InputError(f"input {spec.name!r} is missing: {spec}")
        value = feed[spec.name]
        if any_address and serves_as_input(value, spec):  # between runs of a network all of this is in no cache
            tensors.append(tvm_ffi.from_dlpack(value))
            continue
        tensor = tensor_of(value, spec, staging, any_address=any_address)
        shape = tuple(map(int, tensor.shape))
        if shape != spec.shape:
            _check_shape(shape, spec, known, interface.ranges)
        tensors.append(tensor)
    if interface.extents:
        check_not_negative(interface.extents, {name: size for name, (size, _) in known.items()})
    return tensors


def check_names(asked: Sequence[Any], known: Sequence[str], what: str) -> None:
    """:class:`InputError` for a name that is none, with the one that may be meant."""
    for name in asked:
        if name not in known:
            near = did_you_mean(name, known)
            raise InputError(f"there is no {what} {name!r}; {near}there are {', '.join(map(repr, known))}")


def _check_shape(
    shape: tuple[int, ...], spec: TensorSpec, known: dict[str, tuple[int, str]], ranges: Sequence[SizeRange]
) -> None:
    if spec.shape is None:
        return
    got = f"got {type_text(shape, spec.dtype)}"
    if len(shape) != len(spec.shape):
        raise InputError(f"input {spec.name!r}: expected {spec}, {got}")
    for axis, (size, extent) in enumerate(zip(shape, spec.shape, strict=True)):
        if isinstance(extent, int) and size != extent:
            raise InputError(f"input {spec.name!r}: expected {spec}, {got}: axis {axis} is {extent}")
        if isinstance(extent, str) and extent.isidentifier():  # what is made of symbols is the program's own to check
            before, first = known.setdefault(extent, (size, f"axis {axis} of {spec.name!r}"))
            if before != size:
                raise InputError(f"input {spec.name!r}: expected {spec}, {got}: {extent} is {before} by {first}")
            if (own := outside(ranges, extent, size)) is not None:
                raise InputError(f"input {spec.name!r}: expected {spec}, {got}: the program is for sizes where {own}")
