"""The graph of one region: tensors, ops with their signatures, and what the outside needs of them.

In: what the importer reads off Relax. Out: plain data that the e-graph is filled from and that emission looks things up
in. TVM objects are carried, never looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eqsat_layout.graph.borders import Part
from eqsat_layout.maps import GLOBAL, Extent, Format, IndexMap
from eqsat_layout.tir.signature import Computation


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and dtype of a tensor, and the memory that Relax has it in, with the groups of its axes there.

    Where a type is expected, ``None`` is what has none: objects, unknown shapes.
    """

    shape: tuple[Extent, ...]
    dtype: str
    scope: str = GLOBAL
    separators: tuple[int, ...] = ()

    @property
    def of_value(self) -> TensorType:
        """The type of such a value wherever it lies: in ordinary memory."""
        return self if self.scope == GLOBAL else TensorType(self.shape, self.dtype)

    @property
    def row_major(self) -> Format:
        """The format that Relax means by a value of this type."""
        return Format.make(IndexMap.identity(self.shape), scope=self.scope, separators=self.separators)


@dataclass(frozen=True, slots=True)
class Frozen:
    """The layouts that an op must have: one format per operand and per result. ``required``: not only desired."""

    operands: tuple[Format, ...]
    results: tuple[Format, ...]
    required: bool = True


@dataclass(frozen=True, slots=True)
class Lifted:
    """What an op is left of: the key of the ``whole`` call, and the maps that were lifted out of its function.

    ``pre`` pairs operands, by number, with the maps before them, ``post`` is the map after the only result.
    """

    whole: str
    pre: tuple[tuple[int, IndexMap], ...]
    post: IndexMap | None


@dataclass(frozen=True, slots=True)
class Signature:
    """Everything about an op but its operands: equal signatures on equal operands give equal values.

    ``template`` is one of the Relax expressions that have this signature; ``lowered`` gives what it means as TIR, and
    is ``None`` where that is not known: then layouts don't cross it. ``view`` is set where the op only renames
    elements, and ``parts`` where it is a row of views, pads and crops.
    ``symbols`` are the TIR variables that the types name: those of another function are others, whatever their name.
    """

    key: str
    name: str
    operands: tuple[TensorType | None, ...]
    results: tuple[TensorType | None, ...]
    template: Any
    lowered: Callable[[], Any] | None = None
    computation: Computation | None = None
    view: IndexMap | None = None
    parts: tuple[Part, ...] = ()
    frozen: Frozen | None = None
    symbols: tuple[tuple[str, Any], ...] = ()
    lifted: Lifted | None = None

    @property
    def func(self) -> Any:
        """The PrimFunc, made when it is asked for first: planning knows what most of them compute without; None where
        there is none."""
        return None if self.lowered is None else self.lowered()

    @property
    def rule_name(self) -> str:
        """What rules know the op by: the Relax op's name, or ``call_tir:`` and the name of the PrimFunc."""
        return f"call_tir:{self.name}" if self.is_call_tir else self.name

    @property
    def is_call_tir(self) -> bool:
        """It calls a PrimFunc of the module."""
        return getattr(getattr(self.template, "op", None), "name", "") == "relax.call_tir"

    @property
    def as_written(self) -> tuple[tuple[Format | None, ...], tuple[Format | None, ...]]:
        """The formats of operands and results that the op was written in: row-major, in the memories of their types."""
        return tuple(map(_row_major, self.operands)), tuple(map(_row_major, self.results))

    @property
    def is_specialised(self) -> bool:
        """The PrimFunc is one of flat memory, and the tensors that it is called on lie elsewhere."""
        if self.computation is None:
            return False
        buffers = (*self.computation.operands, *self.computation.results)
        scopes = [self.computation.buffers[number].scope for number in buffers]
        return scopes != [t.scope for t in (*self.operands, *self.results) if t is not None]

    @property
    def is_tuple(self) -> bool:
        """The op's value is a tuple, taken apart by ``get`` nodes."""
        return len(self.results) != 1

    @property
    def is_moved(self) -> bool:
        """The op is frozen to other layouts than those it was written in."""
        return self.frozen is not None and not all(
            f.is_row_major for f in (*self.frozen.operands, *self.frozen.results)
        )

    @property
    def is_placing(self) -> bool:
        """The result is the operand in another memory, which no kernel does as it is written."""
        scopes = [None if ty is None else ty.scope for ty in (*self.operands, *self.results)]
        return self.view is not None and len(scopes) == 2 and scopes[0] != scopes[1]

    @property
    def flows(self) -> bool:
        """Layouts may be asked through this op."""
        return self.computation is not None and self.frozen is None and not self.parts


def _row_major(ty: TensorType | None) -> Format | None:
    return None if ty is None else ty.row_major


@dataclass(frozen=True, slots=True)
class Node:
    """One binding. ``kind`` is ``param``, ``const``, ``op`` or ``get``; ``inputs`` are indices of earlier nodes."""

    kind: str
    name: str
    type: TensorType | None
    var: Any
    signature: str = ""
    inputs: tuple[int, ...] = ()
    index: int = 0

    @property
    def label(self) -> str:
        """The name that a person knows it by; the names of parameters carry a number that makes them unique."""
        return self.name.partition("@")[0]


@dataclass
class Graph:
    """One region: a run of bindings of a dataflow block that are all understood.

    ``goals`` are the nodes whose values the outside uses, with the Relax variable that it uses them by. ``bindings`` is
    the half-open range of binding positions in the block. ``symbols`` maps the text of symbolic sizes to TIR variables.
    """

    function: str
    block: int
    bindings: tuple[int, int]
    nodes: list[Node] = field(default_factory=list)
    goals: list[tuple[int, Any]] = field(default_factory=list)
    symbols: dict[str, Any] = field(default_factory=dict)

    def value_types(self, i: int, signatures: Mapping[str, Signature]) -> tuple[TensorType | None, ...]:
        """The types of node ``i``: one, or those of the parts of a tuple."""
        node = self.nodes[i]
        return signatures[node.signature].results if node.kind == "op" else (node.type,)

    @property
    def ops(self) -> int:
        """Number of op bindings."""
        return sum(node.kind == "op" for node in self.nodes)


@dataclass
class Program:
    """All regions of a module and the signatures that they share."""

    graphs: list[Graph]
    signatures: dict[str, Signature]
    notes: list[str]


def any_numbers_in(signatures: Mapping[str, Signature]) -> bool:
    """The data of these ops may be any numbers, as the importer was told."""
    return any(one.computation is not None and one.computation.any_numbers for one in signatures.values())
