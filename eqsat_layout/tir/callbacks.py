"""Flows that a user registers for functions whose TIR says nothing, or not enough, about layouts.

In: callbacks by name, and what one of them answers. Out: :class:`Flow`, checked. A callback is trusted with what its
function computes, never with the form of its answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, Protocol

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import Extent, Format, IndexMap
from eqsat_layout.tir.flow import Flow

CALLBACK_ATTRIBUTE = "eqsat_layout.flow"
"""The attribute of a PrimFunc that names its callback; without it the callback goes by the function's or op's name."""

MOST_ANSWERS = 256
"""A callback that gives more is taken to give answers without end."""

Direction = Literal["backward", "forward"]
"""Which way a map is asked through: from a result to the operands, or from an operand to the results."""

Shape = tuple[Extent, ...]

Maps = Sequence[IndexMap | None]
"""One index map per tensor; ``None`` is row-major."""


class FlowCallback(Protocol):
    """Says how layouts go through one function."""

    def __call__(
        self,
        operands: tuple[Shape, ...],
        results: tuple[Shape, ...],
        direction: Direction,
        index: int,
        index_map: IndexMap,
        /,
    ) -> Iterable[tuple[Maps, Maps]] | None:
        """The maps of (all operands, all results) under which the function may run, best first; ``None``: none.

        ``backward``: result ``index`` comes in ``index_map``; ``forward``: operand ``index`` is read in it. That tensor
        must have just this map in every answer.
        """
        ...


@dataclass(frozen=True)
class FlowCallbacks:
    """Callbacks by name: of a Relax op (``relax.nn.conv2d``), of a PrimFunc, or the PrimFunc's attribute."""

    by_name: Mapping[str, FlowCallback] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, callback in self.by_name.items():
            if not callable(callback):
                raise LayoutError(f"the flow callback of {name!r} is not callable: {callback!r}")

    def named(self, name: str, func: Any = None, other_name: str | None = None) -> tuple[str, FlowCallback] | None:
        """The callback of an op, with the name that it goes by; the attribute of its PrimFunc comes first.

        :class:`LayoutError` if that names no callback.
        """
        attribute = func.attrs.get(CALLBACK_ATTRIBUTE) if func is not None and func.attrs is not None else None
        if attribute is not None and str(attribute) not in self.by_name:
            raise LayoutError(f"{name}: no flow callback is registered as {str(attribute)!r}, which its PrimFunc names")
        known = name if other_name is None or name in self.by_name else other_name
        chosen = str(attribute) if attribute is not None else known
        callback = self.by_name.get(chosen)
        return None if callback is None else (chosen, callback)


@dataclass(frozen=True)
class FlowAsker:
    """Asks ``callback`` about an op with operands and results of these shapes. ``where``: both of them, for errors."""

    where: str
    callback: FlowCallback
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]

    def ask(self, direction: Direction, index: int, index_map: IndexMap) -> tuple[Flow, ...]:
        """What the callback answers, as flows without internal buffers.

        Raises :class:`LayoutError`, naming the op and the callback, if it raises, or answers anything but complete maps
        of the right shapes that agree with the one asked for.
        """
        try:
            answers = self.callback(self.operands, self.results, direction, index, index_map)
            listed = [] if answers is None else list(islice(answers, MOST_ANSWERS + 1))
        except Exception as error:  # code of the user's
            raise LayoutError(f"{self.where} raised {type(error).__name__}: {error}") from error
        if len(listed) > MOST_ANSWERS:
            raise LayoutError(f"{self.where} gives more than {MOST_ANSWERS} answers; does it ever end?")
        flows: dict[Flow, None] = {}
        for answer in listed:
            if not isinstance(answer, tuple | list) or len(answer) != 2:
                raise LayoutError(f"{self.where} must give (operand maps, result maps), got {answer!r}")
            operands = self._formats(answer[0], self.operands, "operand")
            results = self._formats(answer[1], self.results, "result")
            asked = (results if direction == "backward" else operands)[index].index_map
            if asked != index_map:
                raise LayoutError(f"{self.where} was asked about {index_map} {direction}, and answered for {asked}")
            flows[Flow(operands, results, ())] = None
        return tuple(flows)

    def _formats(self, maps: Any, shapes: Sequence[Shape], what: str) -> tuple[Format, ...]:
        if not isinstance(maps, tuple | list) or len(maps) != len(shapes):
            raise LayoutError(f"{self.where} must give a map for each of {len(shapes)} {what}s, got {maps!r}")
        return tuple(
            self._format(index_map, shape, f"{what} {i}")
            for i, (index_map, shape) in enumerate(zip(maps, shapes, strict=True))
        )

    def _format(self, index_map: Any, shape: Shape, what: str) -> Format:
        if index_map is None:
            return Format.row_major(shape)
        if not isinstance(index_map, IndexMap):
            raise LayoutError(f"{self.where} must give an IndexMap or None for {what}, got {index_map!r}")
        if index_map.shape != shape:
            raise LayoutError(f"{self.where} gave a map of shape {index_map.shape} for {what} of shape {shape}")
        try:
            return Format.make(IndexMap.make(index_map.shape, index_map.dims))
        except LayoutError as error:  # made without IndexMap.make
            raise LayoutError(f"{self.where} gave no bijection for {what}: {error}") from error
