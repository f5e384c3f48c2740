"""What became of each module in each way, on disk as it comes, and what of it is known to be TVM's own fault.

In: outcomes. Out: a line of JSON each; tables of what became of all, and of why some say nothing; and which outcomes
are neither right nor known, and which known ones are not found any more.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.table import Table

KINDS: Final = ("equal", "rounding", "nothing to do", "differ", "refused", "refused alone", "crash", "hang", "not run")
WRONG: Final = frozenset({"differ", "refused alone", "crash", "hang"})
_FAULT: Final = "TVM's fault"
_LEFT: Final = "not tried"
_FUNCTION: Final = re.compile(r"^\S+: ")
_PARTICULARS: Final = re.compile(r"[:;].*| '.*", re.DOTALL)


@dataclass(frozen=True)
class Outcome:
    """``digest``: of the module; ``name``: the first one that a test knows it by; ``lost``: how many kinds of inputs
    ended stock TVM's process."""

    digest: str
    name: str
    way: str
    kind: str
    text: str
    lost: int = 0


@dataclass(frozen=True)
class Known:
    """A fault of TVM's: ``modules`` by digest or by name of file and test; the ``ways`` in which it shows.

    ``sometimes``: it depends on what lies in memory that is not the module's.
    """

    modules: tuple[str, ...]
    ways: tuple[str, ...]
    kind: str
    reason: str
    evidence: str
    sometimes: bool = False

    def says(self, outcome: Outcome) -> bool:
        """Whether the outcome is this fault."""
        is_module = outcome.digest in self.modules or outcome.name in self.modules
        return is_module and outcome.kind == self.kind and (outcome.way in self.ways or "all" in self.ways)


def read_known(path: Path) -> list[Known]:
    """Those of a file."""
    entries = json.loads(path.read_text())
    return [Known(tuple(e.pop("modules")), tuple(e.pop("ways")), **e) for e in entries]


def read_outcomes(path: Path) -> list[Outcome]:
    """Those that were written down, the last of each."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = [Outcome(**json.loads(line)) for line in lines]
    return list({(o.digest, o.way): o for o in found}.values())


def write_outcome(path: Path, outcome: Outcome) -> None:
    """Adds one."""
    with path.open("a") as record:
        record.write(json.dumps(asdict(outcome)) + "\n")


def table_of(outcomes: Iterable[Outcome], known: Iterable[Known], ways: Iterable[str], modules: int) -> Table:
    """A row for each way. What is TVM's fault is counted apart, and what of so many modules was not tried."""
    counts: Mapping[str, Counter[str]] = {way: Counter() for way in ways}
    listed = list(known)
    for outcome in outcomes:
        if outcome.way in counts:
            counts[outcome.way][_counted_as(outcome, listed)] += 1
    table = Table()
    table.add_column("way")
    columns = (*KINDS, _FAULT, _LEFT)
    for column in columns:
        table.add_column(column, justify="right")
    for way, counter in counts.items():
        counter[_LEFT] = modules - counter.total()
        table.add_row(way, *(str(counter[column] or "") for column in columns))
    return table


def unrun(outcomes: Iterable[Outcome]) -> Table:
    """Why stock TVM says nothing of modules, or of some of their functions, and how often, with the first of each."""
    found = defaultdict[str, list[Outcome]](list)
    for outcome in outcomes:
        if outcome.way == "stock" and outcome.text:
            why = _PARTICULARS.sub("", _FUNCTION.sub("", outcome.text))
            found[why if outcome.kind == "not run" else f"{why} (of some functions)"].append(outcome)
    table = Table("why stock TVM says nothing", "modules", "the first")
    for why, those in sorted(found.items(), key=lambda item: -len(item[1])):
        table.add_row(why, str(len(those)), f"{those[0].digest} {those[0].text[:90]}")
    return table


def wrong(outcomes: Iterable[Outcome], known: Iterable[Known]) -> Iterator[Outcome]:
    """What differs, crashes or hangs, and is not known."""
    listed = list(known)
    return (o for o in outcomes if o.kind in WRONG and not any(k.says(o) for k in listed))


def outdated(outcomes: Iterable[Outcome], known: Iterable[Known], *, is_part: bool) -> Iterator[str]:
    """What is listed and was not seen; ``is_part``: only of modules that were tried."""
    tried = list(outcomes)
    for entry in known:
        for module in () if entry.sometimes else entry.modules:
            if is_part and not any(module in (o.digest, o.name) and o.way in entry.ways for o in tried):
                continue
            if not any(entry.says(o) and module in (o.digest, o.name) for o in tried):
                yield f"{module}: {entry.kind}: {entry.reason}"


def _counted_as(outcome: Outcome, known: list[Known]) -> str:
    is_known = outcome.kind in WRONG and any(k.says(outcome) for k in known)
    return _FAULT if is_known else outcome.kind
