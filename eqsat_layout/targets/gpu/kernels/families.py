"""Which family of kernels a PrimFunc is of.

In: a PrimFunc and families, the fastest first. Out: launches of the first one that takes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tvm
from tvm import s_tir, tirx

from eqsat_layout.errors import Refused, TargetError
from eqsat_layout.notes import Notes
from eqsat_layout.targets.gpu.kernels.serial import rest_as_it_stands
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.targets.schedules.blocks_in_loops import has_blocks_inside, schedule_inside
from eqsat_layout.tir.structural import nodes_of

Family: TypeAlias = Callable[[Any], Any]
"""From a PrimFunc to one that launches threads; :class:`Refused` where it is not of the family."""
Otherwise: TypeAlias = Callable[[Any], tuple[Any, bool]]
"""The same for any PrimFunc, and whether some of it is left to a single thread."""

_MOST = 1 << 14  # launches of one kernel


def of_first_family(
    name: str, func: Any, notes: Notes, families: Sequence[Family], otherwise: Otherwise, thread: str
) -> Any:
    """``func`` as launches; ``otherwise`` where all refuse, with a note. ``thread``: what the target calls one."""
    reasons: list[str] = []
    try:
        if has_blocks_inside(func) and _is_counted(func):
            return _inside(name, func, families, otherwise, thread, notes)
        for family in families:
            try:
                return family(func)
            except Refused as reason:
                reasons.append(str(reason))
        made, has_one = otherwise(func)
    except Refused as reason:
        raise TargetError(f"kernel {name} can't be built: {reason}") from reason
    if has_one:
        notes.add(f"kernel {name} runs in one {thread}: {reasons[-1]}")
    return made


def said_of(functions: Mapping[str, Any], made: Callable[[str, Any, Notes], Any]) -> tuple[str, ...]:
    """What ``made`` notes of each function that it makes launches of, and why it can't, for who builds nothing."""
    notes = Notes()
    for name, func in functions.items():
        try:
            made(name, func, notes)
        except TargetError as reason:
            notes.add(str(reason))
        except tvm.error.InternalError as error:
            notes.fault(f"kernel {name} may not be built", error)
    return tuple(notes)


def _is_counted(func: Any) -> bool:
    """The host knows how often its loops are done, and can write all launches down."""
    loops = [loop for loop in nodes_of(func.body, tirx.For) if nodes_of(loop.body, tirx.SeqStmt)]
    counts = [as_int(loop.extent) for loop in loops]
    if None in counts or any(as_int(loop.min) is None for loop in loops):
        return False
    return math.prod(count or 0 for count in counts) * len(nodes_of(func.body, s_tir.SBlock)) <= _MOST


def _inside(name: str, func: Any, families: Sequence[Family], otherwise: Otherwise, thread: str, notes: Notes) -> Any:
    """The host does the loops, and launches stages one after the other."""

    def launched(part: Any, _: bool) -> Any:
        return of_first_family(name, part, notes, [_by_elements(family) for family in families], otherwise, thread)

    refused: list[str] = []
    made, has_one = rest_as_it_stands(schedule_inside(func, launched, refused))
    for reason in refused:
        notes.add(f"kernel {name}{reason}")
    if has_one:
        notes.add(f"some of kernel {name} runs in one {thread}")
    return made


def _by_elements(family: Family) -> Family:
    """The family of kernels that load and store elements of tensors, or of slices of tensors."""

    def made(func: Any) -> Any:
        kernel = family(func)
        if set(kernel.params).intersection(arg for call in nodes_of(kernel.body, tvm.ir.Call) for arg in call.args):
            raise Refused("it needs the address of a tensor, and has a slice")
        return kernel

    return made
