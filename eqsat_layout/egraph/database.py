"""The e-graph as a database: rules in, rows in, phases run, rows out. The only place that knows egglog's API.

In: rule commands and rows of strings and integers. Out: frozen tables. E-classes are opaque hashable handles that stay
valid until the next run.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from egglog.bindings import EGraph

from eqsat_layout.egraph.rules import Command, padded
from eqsat_layout.errors import RuleError

Row = tuple[Any, ...]


class Database:
    """One egglog e-graph. Not shared between threads."""

    def __init__(self, commands: Sequence[Command]):
        self._folder = tempfile.TemporaryDirectory(prefix="eqsat_layout_")
        self._egraph = EGraph(fact_directory=self._folder.name)
        self._files = 0
        self._strings: dict[Any, str] = {}
        for command, text in padded(commands):
            self._declare(command, text)

    def _declare(self, command: Command, text: str) -> None:
        try:
            self._egraph.run_program(*self._egraph.parse_program(text, Path(command.file).name))
        except BaseException as error:  # egglog panics with a BaseException for some mistakes
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise RuleError(f"{_position(command, error)}: {_reason(error)}") from error

    def load(self, rows: Mapping[str, Iterable[Row]]) -> None:
        """Adds rows to relations, one file per relation (a hundred times cheaper than commands)."""
        for relation, content in rows.items():
            lines = ["\t".join(map(_field, row)) for row in content]
            if not lines:
                continue
            self._files += 1
            name = f"{self._files}.tsv"
            (Path(self._folder.name) / name).write_text("\n".join(lines), encoding="utf-8")
            self.command(f'(input {relation} "{name}")')

    def command(self, text: str) -> Any:
        """Runs one command of our own."""
        return self._egraph.run_program(*self._egraph.parse_program(text))

    def saturate(self, ruleset: str) -> None:
        """Runs ``ruleset`` until nothing changes."""
        self.command(f"(run-schedule (saturate (run {ruleset})))")

    def step(self, ruleset: str) -> None:
        """Runs ``ruleset`` once."""
        self.command(f"(run {ruleset} 1)")

    def tables(self) -> Tables:
        """A snapshot of all tables."""
        return Tables(self._egraph, self._strings)

    def close(self) -> None:
        """Frees the scratch files."""
        self._folder.cleanup()


class Tables:
    """A snapshot: rows by table name. Strings and integers are decoded, e-classes are handles."""

    def __init__(self, egraph: Any, strings: dict[Any, str]):
        self._egraph = egraph
        self._functions = egraph.freeze().functions
        self._strings = strings

    @property
    def names(self) -> list[str]:
        """All tables, in the order of their declaration."""
        return list(self._functions)

    def size(self, name: str) -> int:
        """Number of rows."""
        return len(self._functions[name].rows)

    def rows(self, name: str) -> list[Row]:
        """The rows of a relation, or of a constructor with its e-class last."""
        function = self._functions[name]
        decoders = [self._decoder(sort) for sort in function.input_sorts]
        constructor = not function.output_sort.startswith("@")  # a relation gives a sort of its own
        result: list[Row] = []
        for row in function.rows:
            values = [decode(v) for decode, v in zip(decoders, row.inputs, strict=True)]
            if constructor:
                values.append(row.output)
            result.append(tuple(values))
        return result

    def _decoder(self, sort: str) -> Any:
        if sort == "String":
            strings, to_string = self._strings, self._egraph.value_to_string

            def decode(value: Any) -> str:
                text = strings.get(value)
                if text is None:
                    text = strings[value] = _unescaped(to_string(value))
                return text

            return decode
        if sort == "i64":
            return self._egraph.value_to_i64
        return _handle

    def enodes_and_classes(self, sorts: Iterable[str]) -> tuple[int, int]:
        """E-nodes and e-classes of the constructors that give these sorts."""
        nodes = 0
        classes: set[tuple[str, Any]] = set()
        for function in self._functions.values():
            if function.output_sort in sorts:
                nodes += len(function.rows)
                classes.update((function.output_sort, row.output) for row in function.rows)
        return nodes, len(classes)


_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\x0b": "\\v", "\x0c": "\\f"}
_ESCAPABLE = re.compile(r"[\\\s]")
_ESCAPED = re.compile(r"\\(.)")


def _field(value: Any) -> str:
    """A column of a fact file. Names are the user's, and may hold what separates columns and rows."""
    text = str(value)
    return _ESCAPABLE.sub(lambda m: _ESCAPES.get(m[0], m[0]), text) if _ESCAPABLE.search(text) else text


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    back = {escaped[1]: char for char, escaped in _ESCAPES.items()}
    return _ESCAPED.sub(lambda m: back.get(m[1], m[1]), text)


def _handle(value: Any) -> Any:
    return value


def _position(command: Command, error: BaseException) -> str:
    """``file:line:column``, from egglog's ``In 4:24-25 of file:`` where it says so."""
    context = f"{getattr(error, 'context', '')}\n{error}"
    for line in context.splitlines():
        if line.startswith("In ") and " of " in line:
            place = line[3:].split(" of ")[0].split("-")[0]
            if all(part.isdigit() for part in place.split(":")):
                return f"{command.file}:{place}"
    return f"{command.file}:{command.line}:{command.column}"


def _reason(error: BaseException) -> str:
    text = str(getattr(error, "context", "") or error)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("In ")]
    return " / ".join(lines) or type(error).__name__
