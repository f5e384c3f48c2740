"""The steps of a chosen plan: what is run, converted and taken from outside, in order.

In: the extraction's choice. Out: a straight-line program over stores, which emission turns into Relax. A store is a
number; every store is defined by exactly one step, before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from eqsat_layout.graph.constants import Constant
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.maps import Format
from eqsat_layout.tir.flow import Flow


@dataclass(frozen=True)
class ConstantUse:
    """A constant, to be laid out in a format when the plan is emitted."""

    constant: Constant
    format: Format


Formats = tuple[Format | None, ...]

Operand = int | ConstantUse
"""What a step reads: a store, or a constant laid out when the plan is emitted."""


@dataclass(frozen=True)
class Given:
    """The value of a variable from outside of the region, as it is. ``node`` is its index in the graph."""

    store: int
    node: int

    @property
    def sources(self) -> tuple[int, ...]:
        """The stores that are read: none."""
        return ()


@dataclass(frozen=True)
class Run:
    """An op: ``flow`` says in which formats, None as it was written."""

    store: int
    signature: str
    flow: Flow | None
    operands: tuple[Operand, ...]

    @property
    def sources(self) -> tuple[int, ...]:
        """The stores that are read."""
        return tuple(operand for operand in self.operands if isinstance(operand, int))

    def layouts(
        self, signatures: Mapping[str, Signature]
    ) -> tuple[tuple[Format | None, ...], tuple[Format | None, ...]]:
        """The formats of operands and results."""
        if self.flow is None:
            return signatures[self.signature].as_written
        return tuple(self.flow.operands), tuple(self.flow.results)


@dataclass(frozen=True)
class ResultPart:
    """Result ``index`` of an op with several results."""

    store: int
    source: Operand
    index: int

    @property
    def sources(self) -> tuple[int, ...]:
        """The stores that are read."""
        return (self.source,) if isinstance(self.source, int) else ()


@dataclass(frozen=True)
class Convert:
    """A copy of one tensor from one format to another; free where the bytes are the same."""

    store: int
    source: int
    type: TensorType
    before: Format
    after: Format

    @property
    def sources(self) -> tuple[int, ...]:
        """The stores that are read."""
        return (self.source,)

    @property
    def is_free(self) -> bool:
        """The bytes are the same."""
        return self.before.serves_as(self.after)


@dataclass(frozen=True)
class Inside:
    """The inside of a wider buffer, used as it is: a crop that costs nothing."""

    store: int
    source: Operand

    @property
    def sources(self) -> tuple[int, ...]:
        """The stores that are read."""
        return (self.source,) if isinstance(self.source, int) else ()


Step = Given | Run | ResultPart | Convert | Inside


@dataclass
class Steps:
    """The program: steps in an order that can be executed, and where each goal of the graph is found.

    ``variables`` maps a store to the binding whose very value it is (row-major), ``origins`` to the binding that it is
    named after.
    """

    steps: list[Step] = field(default_factory=list)
    goals: list[Operand] = field(default_factory=list)
    variables: dict[int, int] = field(default_factory=dict)
    origins: dict[int, int] = field(default_factory=dict)

    def constants(self) -> Iterator[ConstantUse]:
        """Every use of a constant."""
        operands = [o for step in self.steps if isinstance(step, Run) for o in step.operands]
        yield from (o for o in (*operands, *self.goals) if isinstance(o, ConstantUse))
