"""Which terms of a body are of one type.

In: what a body looks for. Out: :class:`TermTypes`: a node for each of its terms, those of one type joined, and how
they come about. An op of one key takes operands of one type wherever it stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from eqsat_layout.egraph.expressions import Expr, arguments_of
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.soundness.rules.body_searches import BodySearch
from eqsat_layout.soundness.rules.draws import COMPUTED

_TYPE = re.compile(r'"(\w+)\[([\d,]*)\]"')


def type_called(name: Expr) -> TensorType | None:
    """The type that a body calls by its name, ``"float32[2,3]"``; None for a variable, and for what is none."""
    found = _TYPE.fullmatch(name) if isinstance(name, str) else None
    if found is None or found[1] not in COMPUTED:
        return None
    return TensorType(tuple(int(extent) for extent in found[2].split(",") if extent), found[1])


@dataclass(frozen=True)
class AppliedTerm:
    """Op ``key`` of operands: nodes, and the rest of the list by name, if it has any; ``result`` is a node."""

    key: str
    operands: tuple[int, ...]
    rest: str
    result: int


@dataclass
class TermTypes:
    """The nodes of a body: which terms must be of one type, and how they come about."""

    named: dict[str, str]
    applied: list[AppliedTerm] = field(default_factory=list)
    gets: list[tuple[Expr, int, int]] = field(default_factory=list)
    """Which result, of which tuple, is which node."""
    items: dict[str, list[tuple[Expr, int]]] = field(default_factory=dict)
    """By list: which operand is which node."""
    attributes: dict[str, list[tuple[str, Expr | None]]] = field(default_factory=dict)
    """By op: the name of an attribute, and what it is; None: its default."""
    alike: tuple[tuple[str, ...], ...] = ()
    """Ops of one name each."""
    called: list[tuple[int, TensorType]] = field(default_factory=list)
    """Nodes whose type the body calls by its name."""
    _parents: list[int] = field(default_factory=list)
    _nodes: dict[Expr, int] = field(default_factory=dict)

    @staticmethod
    def of(sought: BodySearch) -> TermTypes:
        """What a body says of the types of its terms."""
        types = TermTypes({key: text for key, text in reversed(sought.named) if text != "frozen"})
        types.alike = sought.alike
        for a, b in sought.equations:
            types._join(types._node(a), types._node(b))
        for name, index, item in sought.items:
            types.items.setdefault(name, []).append((index, types._node(item)))
        by_key: dict[str, AppliedTerm] = {}
        for applied in types.applied:
            other = by_key.setdefault(applied.key, applied)
            if len(other.operands) == len(applied.operands):
                for x, y in zip((*other.operands, other.result), (*applied.operands, applied.result), strict=True):
                    types._join(x, y)
        for term, ty in sought.typed:
            types._join(types._node(term), types._node(("type", ty)))
        for ty in dict.fromkeys(ty for _, ty in (*sought.typed, *sought.gives)):
            known = type_called(ty)
            types.called += [] if known is None else [(types._node(("type", ty)), known)]
        for key, ty in sought.gives:
            for applied in [a for a in types.applied if a.key == key]:
                types._join(applied.result, types._node(("type", ty)))
        for key, name, value in sought.attributes:
            types.attributes.setdefault(key, []).append((name, value))
        return types

    @property
    def variables(self) -> dict[str, int]:
        """The nodes of terms that a body has a variable for."""
        return {term: node for term, node in self._nodes.items() if isinstance(term, str)}

    def root(self, node: int) -> int:
        """The node that stands for all of the same type."""
        while self._parents[node] != node:
            node = self._parents[node]
        return node

    def _join(self, a: int, b: int) -> None:
        self._parents[self.root(a)] = self.root(b)

    def _node(self, term: Expr) -> int:
        known = self._nodes.get(term)
        if known is None:
            known = self._nodes[term] = len(self._parents)
            self._parents.append(known)
            if isinstance(term, tuple):
                self._made(term, known)
        return known

    def _made(self, term: tuple[Expr, ...], node: int) -> None:
        if term[0] == "at":
            self.applied.append(AppliedTerm(str(term[1]), (self._node(term[2]),), "", node))
        elif term[0] == "Op":
            operands, rest = arguments_of(term[2])
            name = rest if isinstance(rest, str) else ""
            self.applied.append(AppliedTerm(str(term[1]), tuple(map(self._node, operands)), name, node))
        elif term[0] == "Get":
            self.gets.append((term[1], self._node(term[2]), node))
