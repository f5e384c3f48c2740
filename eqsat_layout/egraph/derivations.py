"""Which rules are behind what an e-graph holds.

In: a recording, and the tables of an e-graph that ran it. Out: :class:`Derivations`: for an op that is run in some
formats, the rules that wanted them, built the op, and made it equal to what the program says.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_layout.egraph.expressions import Expr, literal_sort, unquoted
from eqsat_layout.egraph.reachable import united
from eqsat_layout.egraph.recording import WHY, Atom, RecordedRule, Recording
from eqsat_layout.egraph.rules import is_own
from eqsat_layout.egraph.tables import Row, Tables

Fact = tuple[str, Row]
"""A row of a table, by its columns; of a constructor it is an e-node. Cells are e-classes, names and numbers."""

Firing = Hashable
"""The handle of a match of a rule."""

_USERS_RULE = 1_000
"""A step through an equality of a user's rule counts as so many of the package's: what holds anyway needs none."""


_PHASES = {"logical": 0, "settle": 1, "flow": 2, "build": 3}


@dataclass(frozen=True)
class RunOp:
    """An op that is run: ``operands`` are e-classes, ``outside`` the numbers of those that no op makes."""

    signature: str
    operands: tuple[Hashable, ...]
    variant: str
    result: str
    outside: tuple[int, ...] = ()


class Derivations:
    """Everything that was written down, as plain data; the e-graph may be gone."""

    def __init__(self, recording: Recording, tables: Tables):
        self._rules, self._tables = recording.rules, recording.tables
        self._lengths = [1 if is_own(recorded.rule.command) else _USERS_RULE for recorded in recording.rules]
        told = [number for number, recorded in enumerate(recording.rules) if _is_told(recorded)]
        told.sort(key=lambda number: _PHASES.get(recording.rules[number].rule.ruleset, 0))
        self._labels = {number: recording.rules[number].rule.label for number in told}
        self._classes: dict[Fact, Hashable] = {}
        self._leaves: dict[Hashable, list[Fact]] = {}
        self._why: dict[Fact, Firing] = {}
        self._firings: dict[Firing, tuple[int, dict[str, Any]]] = {}
        self._unions: dict[Hashable, list[tuple[Firing, Expr, Expr]]] = {}
        self._equalities: dict[Hashable, dict[Fact, list[tuple[Fact, Firing]]]] = {}
        self._masks: dict[Firing, int] = {}
        self._read(tables)

    def _read(self, tables: Tables) -> None:
        for name, table in self._tables.items():
            self._why.update({(name, row[:-1]): row[-1] for row in tables.rows(f"{WHY}{name}")})
            if table.is_constructor:
                self._classes.update({(name, row[:-1]): row[-1] for row in tables.rows(name)})
        for number, rule in enumerate(self._rules):
            for *cells, firing in tables.rows(rule.fired):
                self._firings[firing] = number, dict(zip(rule.variables, cells, strict=True))
                for left, right in rule.unions:
                    self._unions.setdefault(self._cell(firing, left), []).append((firing, left, right))
        for fact, cell in self._classes.items():
            if fact[0] in ("Ref", "Param", "Const"):
                self._leaves.setdefault(cell, []).append(fact)

    # ---- questions --------------------------------------------------------------------------------------------------

    def term(self, table: str, *columns: Any) -> Hashable:
        """The e-class of a term, which there must be."""
        return self._classes[table, columns]

    def op(self, signature: str, operands: Sequence[Hashable]) -> Hashable:
        """The e-class of an op of these operands, which there must be."""
        return self._classes["Op", (signature, self._lists(operands)[0])]

    def _lists(self, operands: Sequence[Hashable]) -> list[Hashable]:
        """The classes of an operand list and of its tails, the longest first."""
        lists = [self.term("End")]
        for operand in reversed(operands):
            lists.append(self.term("Arg", operand, lists[-1]))
        return lists[::-1]

    def rules_behind(self, op: RunOp) -> tuple[str, ...]:
        """The labels of the rules that led to this: those of equalities, of wanted formats, of what then is stored."""
        lists = self._lists(op.operands)
        node: Fact = "Op", (op.signature, lists[0])
        tensor = self._classes[node]
        firings = [self._why["run", (tensor, op.result, op.variant, lists[0])]]
        for leaf in self._leaves.get(tensor, ()):
            firings += self._path(tensor, leaf, node) if leaf[0] == "Ref" else []
        for number in op.outside:
            cell = op.operands[number]
            read = self._origin(("Arg", (cell, lists[number + 1])), 0)
            made = next((leaf for leaf in self._leaves.get(cell, ()) if leaf[0] != "Ref"), None)
            firings += self._path(cell, read, made)
        behind = 0
        for firing in firings:
            behind |= united(firing, self._premises, lambda f: 1 << self._firings[f][0], self._masks)
        return tuple(label for number, label in self._labels.items() if behind >> number & 1)

    # ---- what a firing needs ----------------------------------------------------------------------------------------

    def _premises(self, firing: Firing) -> list[Firing]:
        """The firings behind the rows that one found, and behind the equalities by which it found them together."""
        rule, values = self._fired(firing)
        facts = [self._fact(firing, atom) for atom in rule.atoms]
        needed = [self._why[fact] for fact in facts if fact in self._why]
        for name, ((atom, column), *others) in rule.places.items():
            if not others or rule.variables[name] in ("String", "i64"):
                continue
            first = self._origin(facts[atom], column)
            for atom, column in others:
                needed += self._path(values[name], first, self._origin(facts[atom], column))
        return needed

    def _origin(self, fact: Fact, column: int) -> Fact | None:
        """The e-node that a column of a row stood for when the row was made; the column behind the last is its value.

        None where nothing says it: for a row that no rule made, or a cell that a rule computes.
        """
        seen: set[tuple[Fact, int]] = set()
        place: tuple[Fact, int] | None = (fact, column)
        while place is not None and place not in seen:
            seen.add(place)
            fact, column = place
            if column == len(fact[1]) and self._tables[fact[0]].is_constructor:
                return fact
            firing = self._why.get(fact)
            place = None if firing is None else self._standing_for(firing, self._concluded(firing, fact, column))
        return None

    def _concluded(self, firing: Firing, fact: Fact, column: int) -> Expr | None:
        """The expression in this column of the action that made a row."""
        rule, _ = self._fired(firing)
        made = [c for c in rule.conclusions if c.table == fact[0]]
        for conclusion in made:
            if len(made) == 1 or tuple(self._cell(firing, e) for e in conclusion.columns) == fact[1]:
                return (*conclusion.columns, conclusion.value)[column]
        return None

    def _standing_for(self, firing: Firing, expr: Expr | None) -> tuple[Fact, int] | None:
        """The row and column that an expression of an action has its value from: a term, or what the body found."""
        rule, _ = self._fired(firing)
        while isinstance(expr, str) and expr in rule.lets:
            expr = rule.lets[expr]
        if isinstance(expr, str):
            places = rule.places.get(expr, ())
            return (self._fact(firing, rule.atoms[places[0][0]]), places[0][1]) if places else None
        if expr is None or expr[0] not in self._tables:
            return None
        cells = tuple(self._cell(firing, part) for part in expr[1:])
        return (str(expr[0]), cells), len(cells)

    # ---- equalities -------------------------------------------------------------------------------------------------

    def _path(self, cell: Hashable, start: Fact | None, end: Fact | None) -> list[Firing]:
        """The firings that made two e-nodes of a class one: as few as can be, of users' rules above all.

        Where it is not known which e-nodes are meant, all firings that joined anything in the class.
        """
        if start == end:
            return []
        everything = [firing for firing, _, _ in self._unions.get(cell, ())]
        if start is None or end is None:
            return everything
        graph = self._equalities_of(cell)
        reached: set[Fact] = set()
        waiting: list[tuple[int, int, Fact, tuple[Firing, ...]]] = [(0, 0, start, ())]
        count = 0
        while waiting:
            length, _, node, path = heapq.heappop(waiting)
            if node == end:
                return list(path)
            if node in reached:
                continue
            reached.add(node)
            for other, firing in graph.get(node, ()):
                count += 1
                step = self._lengths[self._firings[firing][0]]
                heapq.heappush(waiting, (length + step, count, other, (*path, firing)))
        return everything

    def _equalities_of(self, cell: Hashable) -> dict[Fact, list[tuple[Fact, Firing]]]:
        """The e-nodes of a class, each with those that a firing made equal to it."""
        if cell not in self._equalities:
            graph: dict[Fact, list[tuple[Fact, Firing]]] = {}
            for firing, *sides in self._unions.get(cell, ()):
                places = [self._standing_for(firing, side) for side in sides]
                left, right = (None if place is None else self._origin(*place) for place in places)
                if left is not None and right is not None:
                    graph.setdefault(left, []).append((right, firing))
                    graph.setdefault(right, []).append((left, firing))
            self._equalities[cell] = graph
        return self._equalities[cell]

    # ---- firings ----------------------------------------------------------------------------------------------------

    def _fired(self, firing: Firing) -> tuple[RecordedRule, dict[str, Any]]:
        """The rule, and what its variables were."""
        number, values = self._firings[firing]
        return self._rules[number], values

    def _fact(self, firing: Firing, atom: Atom) -> Fact:
        return atom.table, tuple(self._cell(firing, cell) for cell in atom.columns)

    def _cell(self, firing: Firing, expr: Expr) -> Any:
        """What an expression is worth; None for what is computed, and for globals."""
        rule, values = self._fired(firing)
        if isinstance(expr, str):
            if expr in rule.lets:
                return self._cell(firing, rule.lets[expr])
            sort = literal_sort(expr)
            return values.get(expr) if sort is None else unquoted(expr) if sort == "String" else int(expr)
        return self._classes.get((str(expr[0]), tuple(self._cell(firing, part) for part in expr[1:])))


def _is_told(recorded: RecordedRule) -> bool:
    """Rules of the package that load the program, or only index terms so that others find them, explain nothing."""
    if not is_own(recorded.rule.command) or recorded.rule.ruleset in ("flow", "build"):
        return True
    builds = any(made.table == "Op" for made in recorded.conclusions)
    return recorded.rule.ruleset == "logical" and (builds or bool(recorded.unions))
