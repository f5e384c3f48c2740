"""Loops and buffers of a kernel that is put together statement by statement.

In: bodies as functions of their loop's variable. Out: TIR statements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Var

from eqsat_layout.targets.cpu.amx.axes import LANES


@dataclass(frozen=True)
class Loops:
    """Loops whose variables are of type ``dtype``."""

    dtype: str

    def loop(self, extent: Any, body: Callable[[Any], Any], kind: Any = tirx.ForKind.SERIAL) -> Any:
        """``body`` for every number below ``extent``."""
        var = Var("i", self.dtype)
        extent = self.number(extent) if isinstance(extent, int) else extent
        return tirx.For(var, self.number(0), extent, kind, body(var))

    def vectors(self, body: Callable[[Any], Any]) -> Any:
        """``body`` for every lane of a vector."""
        return self.loop(LANES, body, tirx.ForKind.VECTORIZED)

    def number(self, value: int) -> Any:
        """A constant."""
        return tirx.IntImm(self.dtype, value)


@dataclass(frozen=True)
class Task:
    """What a core works on: the number of its piece of the steps, of its element of the batch, of its first panel; its
    first row, and how many rows."""

    piece: Any
    batch: Any
    panel: Any
    first: Any
    count: Any


def kept_whole(buffer: Any) -> list[Any]:
    """Stores without which TVM would cut the buffer to what it sees of it, which is not what tiles load and store.

    It would also allocate it anew in the innermost loop in which all of that is.
    """
    zero = tirx.const(0, str(buffer.dtype))
    ends = ([0] * len(buffer.shape), [int(extent) - 1 for extent in buffer.shape])
    return [tirx.BufferStore(buffer, zero, [tirx.IntImm("int32", place) for place in end]) for end in ends]
