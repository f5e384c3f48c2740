"""What programs for OpenCL devices launch, copy, move and hold: ours, other engines' policies, TVM's own pipeline.

In: names of networks and of profiles. Out: a table, a summary and, with ``--json``, the rows. Bytes are modelled, for
each kernel of the compiled program: images are kept in the L1 cache, buffers come from the L2 cache each time where
the profile says so. ``kept MB``: what these kernels would move if all that they read stayed in the first cache, below
which no choice of memories goes; ``once MB``: if each read every byte once, below which only other kernels go;
``planned MB`` and ``copies``: what the planner counts, by which "ours, for traffic" (``objective="traffic"``) and
"ours, for copies" are the optimum.
Launches, copies and memory are those of the compiled program. ``--run`` runs it on PoCL, compares it with the CPU and
gives CPU seconds: images are simulated there. The ten networks need the dependency group ``bench``; ``--small`` gives
them smaller inputs.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from bench.networks.by_name import OTHERS, ZOO, module_of
from bench.opencl.markdown import tables
from bench.opencl.rows import LEAST, NAMES, OURS, rows
from eqsat_layout.targets.opencl.policies import POLICIES

_MB: Final = 1e6

SHOWN: Final = ("three_readers", "relu6_mobilenet", "leaky_unet", *ZOO)
"""The networks if none are named."""

COLUMNS: Final[Sequence[tuple[str, str, int, float]]] = (
    ("launches", "runs", 6, 1),
    ("copies_of_scope", "scope", 6, 1),
    ("copies_of_layout", "layout", 7, 1),
    ("bytes_copied_of_scope", "scope MB", 9, _MB),
    ("bytes_copied_of_layout", "layout MB", 10, _MB),
    ("image_bytes", "image MB", 10, _MB),
    ("image_bytes_written", "written", 8, _MB),
    ("buffer_bytes", "buffer MB", 10, _MB),
    ("buffer_bytes_written", "written", 8, _MB),
    ("kept_bytes", "kept MB", 9, _MB),
    ("once_bytes", "once MB", 9, _MB),
    ("planned_bytes", "planned MB", 11, _MB),
    ("planned_copies", "copies", 7, 1),
    ("modelled_seconds", "model ms", 9, 1e-3),
    ("peak_bytes", "peak MB", 9, _MB),
    ("padded", "padded", 7, 1),
    ("padded_for_free", "free", 5, 1),
    ("violations", "bad", 4, 1),
    ("gap", "gap", 8, 0),
    ("seconds", "plan s", 8, 0.1),
    ("pocl_seconds", "PoCL s", 8, 0.1),
    ("error", "error", 9, 0),
)
"""Of a row: its name, its title, how wide, and what it is divided by. 0: as a power; 0.1: one digit after the dot."""


def show(row: dict[str, Any]) -> str:
    text = f"{row['network']:<24}{row['profile']:<12}{row['policy']:<18}"
    if "fails" in row:
        return f"{text}{row['fails']}"
    for name, _, width, unit in COLUMNS:
        text += f"{'' if row.get(name) is None else number(row[name], unit):>{width}}"
    return text


def number(value: float, unit: float) -> str:
    if unit == 0:
        return f"{value:.1e}"
    return f"{value:.1f}" if unit == 0.1 else str(value) if unit == 1 else f"{value / unit:.1f}"


def summary(found: Sequence[dict[str, Any]], profile: str) -> Iterator[str]:
    """How many times as much as ours others move and take by the model, geometric means over the networks that they
    compile, and the least and most; the same for the best of the policies."""
    tables = [
        {one["policy"]: one for one in found if one["network"] == name and "fails" not in one}
        for name in dict.fromkeys(one["network"] for one in found)
    ]
    bounds: list[list[float]] = []
    planned: list[float] = []
    for table in tables:
        known = [table[policy.name] for policy in POLICIES if policy.name in table]
        if known:
            if LEAST in table:
                planned.append(min(one["planned_bytes"] for one in known) / table[LEAST]["planned_bytes"])
            times, launches = ([one[key] for one in known] for key in ("modelled_seconds", "launches"))
            best = {"modelled_seconds": min(times), "launches": min(launches)}
            table["best policy"] = best | {"image_bytes": min(map(bytes_of, known)), "buffer_bytes": 0.0}
            if OURS in table:
                bounds.append([min(map(bytes_of, known)) / table[OURS][key] for key in BOUNDS])
    if bounds:
        for what, ratios in zip(BOUNDS.values(), zip(*bounds, strict=True), strict=True):
            yield f"{profile}, best policy over what our kernels would move, {what}: {spread(ratios)}"
    if planned:
        yield f"{profile}, best policy over {LEAST}, bytes as planned, {len(planned)} networks: {spread(planned)}"
    for name in ("best policy", *(name for name in NAMES if name != OURS)):
        pairs = [(table[name], table[OURS]) for table in tables if name in table and OURS in table]
        if pairs:
            parts = [f"{what} {spread([of(a) / of(b) for a, b in pairs])}" for what, of in MEASURES.items()]
            yield f"{profile}, {name} over ours, {len(pairs)} of {len(tables)} networks: {', '.join(parts)}"


def spread(ratios: Sequence[float]) -> str:
    return f"{mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def bytes_of(row: dict[str, Any]) -> float:
    return float(row["image_bytes"] + row["buffer_bytes"])


BOUNDS: Final = {"kept_bytes": "all kept in the first cache", "once_bytes": "every byte read once"}
"""Of what other memories, and other kernels, could still gain."""

MEASURES: Final[dict[str, Callable[[dict[str, Any]], float]]] = {
    "bytes": bytes_of,
    "modelled seconds": lambda row: float(row["modelled_seconds"]),
    "launches": lambda row: float(row["launches"]),
}


def mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", help=f"{', '.join(SHOWN)}; {OTHERS}")
    parser.add_argument("--profile", action="append", default=None)
    parser.add_argument("--run", action="store_true", help="on PoCL, too")
    parser.add_argument("--small", action="store_true", help="the ten networks with smaller inputs")
    parser.add_argument("--rows", nargs="+", choices=NAMES, default=NAMES, help="those only, instead of all")
    parser.add_argument("--json", default=None, help="a file for the rows; what is there is not done again")
    parser.add_argument("--longest", type=int, default=600, help="seconds of processor time for each TVM row")
    parser.add_argument("--markdown", action="store_true", help="tables for a page, too")
    given = parser.parse_args()
    print(f"{'network':<24}{'profile':<12}{'policy':<18}" + "".join(f"{t:>{w}}" for _, t, w, _ in COLUMNS))
    found = kept_rows(given.json)
    profiles = given.profile or ["adreno6xx"]
    for name in given.networks or SHOWN:
        for profile in profiles:
            head = {"network": name, "profile": profile, "small": given.small}
            done = {one["policy"] for one in found if head.items() <= one.items()}
            wanted = [row for row in given.rows if row not in done]
            for one in rows(head, partial(network, name, given.small), given.run, wanted, given.longest):
                found.append(one)
                print(show(one), flush=True)
                keep(found, given.json)
    for profile in profiles:
        own = [one for one in found if one["profile"] == profile and one["small"] == given.small]
        for line in (*summary(own, profile), *(tables(own) if given.markdown else ())):
            print(line)


def keep(found: Sequence[dict[str, Any]], path: str | None) -> None:
    """Writes all rows so far."""
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


def kept_rows(path: str | None) -> list[dict[str, Any]]:
    """Those of a run that was interrupted."""
    if path is None or not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return list(json.load(file))


def network(name: str, small: bool) -> Any:
    """A module, with a smaller input if it is one of the ten and that is asked for."""
    if small and name in ZOO:
        from bench.networks import real

        real.make_small()
    return module_of(name)


if __name__ == "__main__":
    main()
