"""Vectors that are made from whole vectors of memory: constants, transposes, and elements picked out.

In: scalar expressions over an axis, or vectors. Out: vector expressions. LLVM has an instruction or two for every
``Shuffle`` here; TVM's own vectors it reads element by element where they lie in several pieces of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.schedules.stages import Stage
from eqsat_layout.tir.arithmetic import BINARY
from eqsat_layout.tir.intrinsics import is_choice, short_name
from eqsat_layout.tir.scalar_functions import ROUNDED
from eqsat_layout.tir.structural import nodes_of

LANEWISE = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)
"""Arithmetic of which a vector's is that of its lanes."""

SIZES = (16, 8, 4)
"""Elements of a vector that shuffles are known for."""
_QUAD = 4  # lanes: instructions move elements within so many, or so many together


class LaneBody(NamedTuple):
    """Statements, and the axes that they are inside of; ``inner`` of these are not for threads.

    ``buffers``: of their own.
    """

    axes: Sequence[Any]
    statements: Sequence[Any]
    inner: int
    buffers: Sequence[Any] = ()


@dataclass(frozen=True)
class Lanes:
    """Vectors of ``count`` elements along the axis ``var``: of a load what ``load`` says, of numbers ``table``'s.

    ``load`` gets loads whose indices use the axis; ``table`` expressions that depend on nothing else; ``choice`` calls
    that give one of two values.
    """

    var: Any
    count: int
    load: Callable[[Any], Any]
    table: Callable[[Any], Any]
    choice: Callable[[Any], Any] | None = None

    def of(self, expr: Any) -> Any:
        """The vector of ``expr``; refused for what has no such vector."""
        used = nodes_of(expr, tirx.Var)
        if not any(var.same_as(self.var) for var in used):
            return tirx.Broadcast(expr, self.count)
        if isinstance(expr, tvm.ir.TensorLoad):
            return self.load(expr)
        if self.choice is not None and is_choice(expr):
            return self.choice(expr)
        if all(var.same_as(self.var) for var in used):
            return self.table(expr)
        if isinstance(expr, LANEWISE):
            return type(expr)(self.of(expr.a), self.of(expr.b))
        raise Refused(f"no vector of {type(expr).__name__}")


def table_of(expr: Any, var: Any, places: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """The values of ``expr`` where ``var`` is ``places``, in the arithmetic of its types; refused for others."""
    dtype = str(expr.ty.dtype)
    if isinstance(expr, tirx.Var):
        if not expr.same_as(var):
            raise Refused(f"{expr.name} is not known")
        return places.astype(dtype)
    if isinstance(expr, tirx.IntImm | tirx.FloatImm):
        return np.full(len(places), expr.value, dtype)
    if isinstance(expr, tirx.Cast):
        return table_of(expr.value, var, places).astype(dtype)
    if type(expr) in BINARY:
        both = (table_of(side, var, places) for side in (expr.a, expr.b))
        return np.asarray(BINARY[type(expr)](*both)).astype(dtype)
    name = short_name(expr)
    if name not in ROUNDED:
        raise Refused(f"no table of {type(expr).__name__}")
    return np.asarray(ROUNDED[name](table_of(expr.args[0], var, places)))


def constant_vector(values: npt.NDArray[Any]) -> Any:
    """A vector of numbers."""
    return shuffled([tirx.const(value.item(), str(values.dtype)) for value in values], range(len(values)))


def picked(read: Callable[[int, int], Any], places: npt.NDArray[np.int64], extent: int) -> Any:
    """The elements at ``places`` of a row of ``extent``, of which ``read(start, count)`` is a vector.

    Refused where they lie in more than two vectors.
    """
    low, high = int(places.min()), int(places.max())
    count = next((size for size in (len(places), *SIZES) if size <= min(extent, len(places))), 0)
    if low < 0 or high >= extent or not count:
        raise Refused("no vector in the row")
    if high - low < count:
        start = min(low, extent - count)
        vector = read(start, count)
        return vector if np.array_equal(places, start + np.arange(count)) else _chosen([vector], places - start, count)
    second = high - count + 1
    if second > low + count:
        raise Refused("more than two vectors")
    chosen = np.where(places < low + count, places - low, count + places - second)
    return _chosen([read(low, count), read(second, count)], chosen, count)


def _chosen(vectors: list[Any], lanes: npt.NDArray[np.int64], count: int) -> Any:
    """These lanes of vectors of ``count``: TVM asks for as many as there are in the result."""
    more = -(-len(lanes) // count) - len(vectors)
    return shuffled([*vectors, *vectors[:1] * more], lanes)


def transposed_vectors(vectors: Sequence[Any], named: Callable[[Any], Any]) -> list[Any]:
    """The columns of a square matrix given as one vector per row. ``named`` binds an intermediate vector to a name.

    A power of two of them, from 4 to 16 lanes: pairs of elements, then of pairs, within quads of lanes, then quads.
    """
    size = len(vectors)
    moved = list(zip(vectors, np.arange(size * size).reshape(size, size), strict=True))  # with where elements are from
    for distance, moves in _steps(size):
        rest = list(range(size))
        while rest:
            first = rest.pop(0)
            second = first + distance
            rest.remove(second)
            pair = moved[first], moved[second]
            for place, chosen in zip((first, second), moves, strict=True):
                origins = np.concatenate([origin for _, origin in pair])[chosen]
                moved[place] = named(shuffled([vector for vector, _ in pair], chosen)), origins
    columns = {int(origins[0]): vector for vector, origins in moved if (np.diff(origins) == size).all()}
    return [columns[column] for column in range(size)]


def _steps(size: int) -> list[tuple[int, Sequence[npt.NDArray[np.int64]]]]:
    """For each step, how far apart the two vectors of a pair are, and which of their lanes the two results have."""
    lanes = np.arange(2 * size).reshape(2, -1, _QUAD)
    low, high = ((lanes[..., at : at + 2].transpose(1, 2, 0).ravel()) for at in (0, 2))
    pairs = lanes.reshape(2, -1, 2)
    low_pairs, high_pairs = (pairs[:, at::2].transpose(1, 0, 2).ravel() for at in (0, 1))
    even, odd = (lanes[:, at::2].ravel() for at in (0, 1))
    quads = [(distance, (even, odd)) for distance in (4, 8) if distance < size]
    return [(1, (low, high)), (2, (low_pairs, high_pairs)), *quads]


def shuffled(vectors: Sequence[Any], lanes: Sequence[int] | npt.NDArray[np.int64]) -> Any:
    """Lanes of all ``vectors`` one after another."""
    return tirx.Shuffle(list(vectors), [tirx.IntImm("int32", int(lane)) for lane in lanes])


def vector_at(indices: Sequence[Any], size: int) -> list[Any]:
    """The indices of so many elements from there on; refused for unsigned ones, which TVM counts no vector from."""
    *outer, last = indices
    if any(str(index.ty.dtype).startswith("uint") for index in indices):
        raise Refused("an index without a sign")
    return [*outer, tirx.Ramp(last, tirx.IntImm(str(last.ty.dtype), 1), size)]


def lanes_of_stage(stage: Stage, machine: CpuMachine, *extents: int | None) -> int:
    """Elements of a vector, no more than there are along the axes."""
    return sizes_along(stage, machine, *extents)[0]


def sizes_along(stage: Stage, machine: CpuMachine, *extents: int | None) -> list[int]:
    """All such, the largest first; refused where there is none."""
    most = min(machine.lanes(stage.write.element_bytes), *(extent or 0 for extent in extents))
    found = [size for size in SIZES if size <= most]
    if not found:
        raise Refused("rows shorter than any vector")
    return found
