"""What a compiled program takes and gives, as it says itself.

In: the bytes that the program's function :data:`TELLS` gives. Out: an :class:`Interface`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from eqsat_layout.session.extents import Extent
from eqsat_layout.sources.ranges import SizeRange

TELLS: Final = "eqsat_layout_interface"
"""The function of a program that returns its interface."""


Shape = tuple[int | str | None, ...]


@dataclass(frozen=True)
class TensorSpec:
    """An input or output. ``shape``: numbers, names or expressions of what is known at run time only, and None for
    what nothing is known of; None where not even the rank is known."""

    name: str
    shape: Shape | None
    dtype: str

    def __str__(self) -> str:
        return type_text(self.shape, self.dtype)


def type_text(shape: Shape | None, dtype: str) -> str:
    """``float32 (1, 3, n, n)``."""
    if shape is None:
        return f"{dtype} of any shape"
    extents = ", ".join("?" if extent is None else str(extent) for extent in shape)
    return f"{dtype} ({extents}{',' if len(shape) == 1 else ''})"


@dataclass(frozen=True)
class Interface:
    """``entry`` is the function that runs. ``branches``: what it does may depend on values, not on shapes alone.

    ``any_address``: it takes tensors that begin at any multiple of their elements' size. ``extents``: of its tensors,
    those that may be below zero for inputs that are too small. ``needs``: what the processor must have. ``ranges``: of
    sizes, for which alone the program was written.
    """

    entry: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    branches: bool
    any_address: bool = False
    extents: tuple[Extent, ...] = ()
    needs: tuple[str, ...] = ()
    ranges: tuple[SizeRange, ...] = ()

    def to_json(self) -> str:
        """What :meth:`from_json` reads."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Interface:
        """Raises ``ValueError`` for anything else."""
        try:
            return Interface._read(json.loads(text))
        except (LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"no interface of a program: {error}") from error

    @staticmethod
    def _read(read: Any) -> Interface:
        branches, any_address = bool(read["branches"]), bool(read.get("any_address"))  # libraries of before say nothing
        extents = tuple(Extent(str(one["text"]), one["tree"]) for one in read.get("extents", ()))
        specs = _specs(read["inputs"]), _specs(read["outputs"])
        needs = tuple(map(str, read.get("needs", ())))
        ranges = tuple(SizeRange(**one) for one in read.get("ranges", ()))
        return Interface(str(read["entry"]), *specs, branches, any_address, extents, needs, ranges)


def _specs(read: Any) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(str(s["name"]), None if s["shape"] is None else tuple(s["shape"]), str(s["dtype"])) for s in read
    )
