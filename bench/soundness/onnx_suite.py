"""ONNX's own test cases through sessions: ``python -m bench.soundness.onnx_suite [--only TEXT...] [--skip TEXT...]
[--jobs N] [--out FILE]``.

About 1 900 models of one op (a quarter of them once more as ONNX writes the op in others) and a hundred that torch
exported, each compiled and run on the inputs, and compared with the results, that ONNX gives with it. A case that is
refused as it stands is tried again with small operands as constants, which is how exporters write sizes and axes.
Prints shares, and what does not pass by kind and op; ``--out`` keeps every outcome as a line of JSON, and what is there
is not tried again. The exit code is 1 if a result is wrong, or an error is none that names its cause.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

os.environ.setdefault("TVM_NUM_THREADS", "1")
os.environ.setdefault("EQSAT_LAYOUT_CACHE", os.path.join(tempfile.gettempdir(), "eqsat_layout_onnx_suite"))

from rich.console import Console
from rich.table import Table

from bench.soundness.onnx_trial import Outcome, cases, ops, outcome
from eqsat_layout.system.workers import WorkerError, Workers

PATIENCE = 600.0
WRONG = frozenset({"wrong", "crash", "died"})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="cases with one of these in the name")
    parser.add_argument("--skip", nargs="+", default=[], help="none with one of these in the name")
    parser.add_argument("--every", type=int, default=1, help="only each so many-th case")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    names = [n for n in sorted(cases()) if _has(n, options.only) and not _has(n, options.skip)][:: options.every]
    done = _read(options.out) if options.out else {}
    processes = Workers(options.jobs, PATIENCE)

    def tried(name: str) -> tuple[Outcome, Outcome]:
        """As it stands, and at its best."""
        first = _apart(processes, name, False)
        return first, _apart(processes, name, True) if first.kind == "refused" else first

    with ThreadPoolExecutor(options.jobs) as threads:
        for future in as_completed([threads.submit(tried, name) for name in names if name not in done]):
            both = future.result()
            done[both[0].name] = both
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps([vars(one) for one in both]) + "\n")
    found = [done[name] for name in names]
    console = Console(width=160)
    for what, at in (("as they stand", 0), ("with small operands as constants", 1)):
        counts = Counter(both[at].kind for both in found)
        shares = ", ".join(f"{kind} {count} ({count / len(found):.1%})" for kind, count in counts.most_common())
        console.print(f"{len(found)} cases {what}: {shares}", highlight=False)
    console.print(_table([both[1] for both in found]))
    return int(any(both[1].kind in WRONG for both in found))


def _has(name: str, texts: list[str]) -> bool:
    return any(text in name for text in texts)


def _read(path: Path) -> dict[str, tuple[Outcome, Outcome]]:
    """What was tried before."""
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = [tuple(Outcome(**one) for one in json.loads(line)) for line in lines]
    return {first.name: (first, best) for first, best in pairs}


def _apart(processes: Workers, name: str, constants: bool) -> Outcome:
    try:
        return processes.apart(_tried, (name, constants))
    except WorkerError as error:
        return Outcome(name, "died", str(error))


def _tried(argument: tuple[str, bool]) -> Outcome:
    return outcome(*argument)


def _table(found: list[Outcome]) -> Table:
    """What does not pass, by kind and op, with the last line of the first."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    own = ops(one.name for one in found)
    for one in found:
        if one.kind != "passed":
            groups[one.kind, own[one.name]].append(one)
    table = Table("kind", "op", "cases", "first", "says")
    for (kind, op), members in sorted(groups.items()):
        said = members[0].text.strip().splitlines()
        table.add_row(kind, op, str(len(members)), members[0].name, said[-1][:300] if said else "")
    return table


if __name__ == "__main__":
    raise SystemExit(main())
