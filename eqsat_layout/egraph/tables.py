"""The tables of an e-graph.

In: an e-graph of egglog's, and rows that are to be loaded. Out: a frozen snapshot of its tables; the text of a file of
facts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from eqsat_layout.egraph.owned import OwnedEGraph

Row = tuple[Any, ...]


class Tables:
    """A snapshot: rows by table name. Strings and integers are decoded, e-classes are handles."""

    def __init__(self, owned: OwnedEGraph, strings: dict[Any, str]):
        self._owned = owned
        self._functions = owned.graph.freeze().functions
        self._strings = strings
        self._as_given: dict[str, list[Any]] = {}

    @property
    def names(self) -> list[str]:
        """All tables, in the order of their declaration."""
        return list(self._functions)

    def size(self, name: str) -> int:
        """Number of rows."""
        return len(self._given(name))

    def _given(self, name: str) -> list[Any]:
        """The rows as egglog has them: to take them over takes as long as to read them."""
        if name not in self._as_given:
            self._as_given[name] = self._functions[name].rows
        return self._as_given[name]

    def rows(self, name: str, start: int = 0) -> list[Row]:
        """The rows of a relation, or of a constructor with its e-class last; from number ``start`` on."""
        function = self._functions[name]
        decoders = [self._decoder(sort) for sort in function.input_sorts]
        constructor = not function.output_sort.startswith("@")  # a relation gives a sort of its own
        result: list[Row] = []
        given = self._given(name)
        for row in given[start:] if start else given:
            values = [decode(v) for decode, v in zip(decoders, row.inputs, strict=True)]
            if constructor:
                values.append(row.output)
            result.append(tuple(values))
        return result

    def _decoder(self, sort: str) -> Any:
        if sort == "String":
            strings, to_string = self._strings, self._owned.graph.value_to_string

            def decode(value: Any) -> str:
                text = strings.get(value)
                if text is None:
                    text = strings[value] = _unescaped(to_string(value))
                return text

            return decode
        if sort == "i64":
            return self._owned.graph.value_to_i64
        return _handle

    def enodes_and_classes(self, sorts: Iterable[str]) -> tuple[int, int]:
        """E-nodes and e-classes of the constructors that give these sorts."""
        nodes = 0
        classes: set[tuple[str, Any]] = set()
        for name, function in self._functions.items():
            if function.output_sort in sorts:
                nodes += self.size(name)
                classes.update((function.output_sort, row.output) for row in self._given(name))
        return nodes, len(classes)


_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\x0b": "\\v", "\x0c": "\\f"}
_ESCAPABLE = re.compile(r"[\\\t\n\r\v\f]")
_ESCAPED = re.compile(r"\\(.)")


def facts_text(rows: Iterable[Row]) -> str:
    """A fact file. Names are the user's, and may hold what separates columns and rows."""
    fields = [list(map(str, row)) for row in rows]
    if _ESCAPABLE.search("".join(map("".join, fields))):
        fields = [[_ESCAPABLE.sub(lambda found: _ESCAPES[found[0]], field) for field in row] for row in fields]
    return "\n".join(map("\t".join, fields))


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    back = {escaped[1]: char for char, escaped in _ESCAPES.items()}
    return _ESCAPED.sub(lambda m: back.get(m[1], m[1]), text)


def _handle(value: Any) -> Any:
    return value
