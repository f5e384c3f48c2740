"""The e-graph as a database: rules in, rows in, phases run, rows out. The only place that knows egglog's API.

In: rule commands and rows of strings and integers. Out: frozen tables. E-classes are opaque hashable handles that stay
valid until the next run.
"""

from __future__ import annotations

import os
import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from tempfile import NamedTemporaryFile, gettempdir
from typing import Any, Final, Literal

from eqsat_layout.egraph.bindings import extension, is_left_behind
from eqsat_layout.egraph.limits import Budget, Stop, rehearsed, used_megabytes
from eqsat_layout.egraph.owned import OwnedEGraph
from eqsat_layout.egraph.rule_forms import rules_of, text_with_name
from eqsat_layout.egraph.rules import Command, is_own
from eqsat_layout.egraph.tables import Row, Tables, facts_text
from eqsat_layout.errors import EqsatError, RuleError, did_you_mean

LogEntry = tuple[str, str]
"""What was done to an e-graph: a relation and the text of its new rows, or a ruleset that was run and the command."""

_DECLARED = re.compile(r"^\((?:ruleset|sort|relation|constructor|function)\s+([^\s()]+)")
_UNKNOWN = re.compile(r"(?:No such ruleset:|Undefined sort|Unbound function|Unbound symbol) \S+$")
_STOPPED = re.compile(r"In (?P<place>\d+:\d+)-[\d:]+ of (?P<file>[^:\n]+): (?P<said>[^\n]*)")
_INTERNAL = re.compile(r"@([A-Za-z-]+)\d+")

Ending = Stop | Literal["done", "paused"]
"""How a run ended: at a limit, with nothing left to do, or before that."""

_PARSED: Final[dict[Command, Any]] = {}
"""Commands of the package's rule files: read once in a process."""

_RUN = "run a ruleset"
"""In a history; no relation has this name."""

_MOST_STEPS, _MOST_REHEARSED_STEPS = 4, 256
"""Steps at a time between looks at the limits: what doubles in each must not grow far in between."""

_PATIENCE = 50
"""Steps after which rules that nobody has tried let questions be answered: what grows must not starve the others."""

_RECENT, _OFTEN = 24, 3
"""Rounds of questions in which it is seen which rules are at work, and in how many of them they are then."""

_SHARE = 0.2
"""Of the time that is left: several steps that take longer are tried one by one."""

_GROWTH, _MEGABYTES_OF_GROWTH = 1.1, 64.0
"""Where a slice grows by more than one of these, the next is one step."""


class Engine:
    """One egglog e-graph. Not shared between threads. ``matches``: how often each rule found something, by its key.

    Raises :class:`EqsatError` in a fork of a process that had one: egglog's threads stay there, and it would wait for
    them for ever.
    """

    def __init__(self, commands: Sequence[Command]):
        if is_left_behind():
            raise EqsatError(
                "egglog can't be used in a fork of a process that has used it: start the process by spawning it"
                ' (multiprocessing.get_context("spawn")), or fork before the first optimize'
            )
        try:
            self._folder = gettempdir()
        except OSError as error:
            raise EqsatError(f"can't write scratch files: {error}") from error
        shipped = tuple(takewhile(is_own, commands))
        self._owned = OwnedEGraph(self._folder, shipped)
        self.history: list[LogEntry] = []
        self.matches: Counter[str] = Counter()
        self._ruleset, self._recent = "", deque[list[Any]](maxlen=_RECENT)
        self._strings: dict[Any, str] = {}
        self._commands = list(shipped)
        for command in () if self._owned.is_declared else shipped:
            self._run_command(command)
        self._owned.mark()
        for command in commands[len(shipped) :]:
            self.declare(command)

    @property
    def _egraph(self) -> Any:
        return self._owned.graph

    def declare(self, command: Command) -> None:
        """Runs a command of a rule file; :class:`RuleError` with its position if egglog does not take it.

        It is moved to its line and column, so that egglog's own positions are those of the file.
        """
        self._run_command(command)
        self._commands.append(command)

    def _run_command(self, command: Command) -> None:
        try:
            self._egraph.run_program(*self._parsed(command))
        except BaseException as error:  # egglog panics with a BaseException for some mistakes
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            self._owned.is_spoiled = True
            reason = _reason(error)
            declared = {name for one in self._commands for name in _DECLARED.findall(one.text)}
            near = did_you_mean(reason.rpartition(" ")[2], declared) if _UNKNOWN.match(reason) else ""
            rule = "".join(f"rule {rule.name!r}: " for rule in rules_of(command)[:1] if rule.is_named)
            raise RuleError(f"{_position(command, error)}: {rule}{reason}; {near}".rstrip("; ")) from error

    def _parsed(self, command: Command) -> Any:
        """As egglog has it; those of the package are the same for every e-graph."""
        if (known := _PARSED.get(command)) is not None:
            return known
        text = "\n" * (command.line - 1) + " " * (command.column - 1) + text_with_name(command)
        parsed = self._egraph.parse_program(text, os.path.basename(command.file))
        if is_own(command):
            _PARSED[command] = parsed
        return parsed

    def load(self, rows: Mapping[str, Iterable[Row]]) -> None:
        """Adds rows to relations, each as a file (a hundred times cheaper than commands)."""
        texts = {relation: facts_text(content) for relation, content in rows.items()}
        self._input({relation: text for relation, text in texts.items() if text})

    def _input(self, texts: Mapping[str, str]) -> None:
        """One file after the other, under one name: it is there while egglog reads only, so that who is killed leaves
        none behind."""
        if not texts:
            return
        self.history += texts.items()
        try:
            with NamedTemporaryFile(
                "w", encoding="utf-8", dir=self._folder, prefix="eqsat_layout_", suffix=".tsv"
            ) as file:
                for relation, text in texts.items():
                    file.seek(0)
                    file.write(text)
                    file.truncate()  # not before: what was empty once is put on the disk when it is closed (ext4)
                    self.command(f'(input {relation} "{Path(file.name).name}")')
        except (OSError, UnicodeEncodeError) as error:
            raise EqsatError(f"can't write a scratch file in {self._folder}: {error}") from error

    def command(self, text: str) -> Any:
        """Runs one command of our own."""
        return self._egraph.run_program(*self._egraph.parse_program(text))

    def saturate(self, ruleset: str, budget: Budget) -> Ending:
        """Runs ``ruleset`` until nothing changes, until it hits a limit, or for a while."""
        steps = 1 if budget.begins_slowly else _MOST_STEPS
        nodes, memory, taken = self.size(), used_megabytes(), 0
        if ruleset != self._ruleset:
            self._ruleset, self._recent = ruleset, deque(maxlen=_RECENT)
        self._recent.append([])
        while True:
            text = f"(run {ruleset} {steps})"
            command = self._egraph.parse_program(text)
            would = self._rehearsed(command, budget, 1 if steps == 1 else _SHARE) if budget.is_guarded else None
            if would and steps > 1:
                steps = 1
                continue
            if would:
                return Stop(ruleset, f"{would}, which a single step would take", self.at_work)
            ran = self._ran(command)
            self.history.append((_RUN, text))
            report = ran[0].report
            iterations = report.iterations
            self._recent[-1].append(iterations[-1:])
            found = +Counter(report.num_matches_per_rule)
            self.matches += found
            if not report.updated or len(iterations) < steps:
                return "done"
            before, nodes, taken = nodes, self.size(), taken + steps
            exceeded = budget.exceeded(nodes, steps, found.total())
            if exceeded is not None:
                return Stop(ruleset, exceeded, self.at_work)
            if budget.is_guarded and taken >= _PATIENCE:
                return "paused"
            grown, memory = used_megabytes() - memory, used_megabytes()
            is_calm = nodes < before * _GROWTH and grown < _MEGABYTES_OF_GROWTH
            most = _MOST_REHEARSED_STEPS if budget.is_guarded else _MOST_STEPS
            steps = min(2 * steps, most) if is_calm else 1

    @property
    def at_work(self) -> tuple[str, ...]:
        """The keys of the rules that found something last, or in round after round of questions; the busiest first."""
        recent = [sum(map(_matches, slices), Counter[str]()) for slices in self._recent]
        rounds = Counter(name for found in recent for name in found)
        often = {name: sum(found[name] for found in recent) for name in rounds if rounds[name] >= _OFTEN}
        last = next((_matches(slices[-1]) for slices in reversed(self._recent) if slices), Counter[str]())
        found = {**often, **last}
        return tuple(sorted(found, key=lambda name: (-found[name], name)))

    def _rehearsed(self, command: Any, budget: Budget, share: float) -> str | None:
        """The limit that the command would hit, in words."""
        ran: list[Any] = []
        hit, matches = rehearsed(
            lambda: ran.extend(self._egraph.run_program(*command)),
            lambda: _matches(ran[0].report.iterations).total(),
            budget,
            share,
        )
        return hit or budget.exceeded_by(matches or 0)

    def holds(self, facts: str) -> bool:
        """Whether something in the e-graph matches all of these facts."""
        try:
            self.command(f"(check {facts})")
        except extension().EggSmolError:
            return False
        return True

    def size(self) -> int:
        """Rows of all tables."""
        return sum(self.sizes().values())

    def sizes(self) -> dict[str, int]:
        """Rows by table: a tenth of the time of a snapshot."""
        return dict(self.command("(print-size)")[0].sizes)

    def step(self, ruleset: str) -> None:
        """Runs ``ruleset`` once."""
        self._run(f"(run {ruleset} 1)")

    def _run(self, text: str) -> None:
        self.history.append((_RUN, text))
        self._ran(self._egraph.parse_program(text))

    def _ran(self, command: Any) -> Any:
        """What rules do is theirs: :class:`RuleError` where egglog stops at it."""
        try:
            return self._egraph.run_program(*command)
        except BaseException as error:
            self._owned.is_spoiled = True
            if not isinstance(error, extension().EggSmolError):
                raise
            found = _STOPPED.search(str(error))
            if found is None:
                raise RuleError(f"a rule stops egglog: {_reason(error)}") from error
            paths = {Path(command.file).name: command.file for command in self._commands}
            file = paths.get(found["file"], found["file"])
            raise RuleError(f"{file}:{found['place']}: stops egglog: {found['said']}") from error

    def repeat(self, history: Iterable[LogEntry], budget: Budget | None = None) -> str | None:
        """Does what another engine did, with other rules. Those may take far longer: with a budget, its limits on time
        and memory are looked at after every step. The one that is hit, in words."""
        for what, text in history:
            if what != _RUN:
                self._input({what: text})
                continue
            for step in [text] if budget is None else _single_steps(text):
                self._run(step)
                hit = None if budget is None else budget.exceeded(0)
                if hit is not None:
                    return hit
        return None

    def tables(self) -> Tables:
        """A snapshot of all tables."""
        return Tables(self._owned, self._strings)


def _single_steps(run: str) -> list[str]:
    """What ``(run RULESET STEPS)`` does, step by step."""
    head, ruleset, steps = run.strip("()").split()
    return [f"({head} {ruleset} 1)"] * int(steps)


def _matches(iterations: Iterable[Any]) -> Counter[str]:
    """How often each rule found something new."""
    found: Counter[str] = Counter()
    for iteration in iterations:
        for name, own in iteration.rule_set_report.rule_reports.items():
            found[name] += sum(r.num_matches for r in own)
    return +found


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
    return _INTERNAL.sub(_as_written, " / ".join(lines)).strip() or type(error).__name__


def _as_written(name: re.Match[str]) -> str:
    """``@End14``, which egglog calls a term of a file, as a term: ``(End)``, ``(Arg ...)``."""
    return f"({name[1]})" if name[1] == "End" else f"({name[1]} ...)"
