"""Tables of ``bench.opencl.programs`` for a page, in Markdown.

In: its rows. Out: lines: each engine's bytes and seconds beside ours; what ours moves, copies, holds; bytes as planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from bench.opencl.rows import LEAST, NAMES, OURS
from eqsat_layout.targets.opencl.policies import POLICIES

_MB: Final = 1e6

Row = dict[str, Any]
Rows = dict[str, Row]


def tables(found: Sequence[Row]) -> Iterator[str]:
    """All three, of rows of one profile."""
    networks: dict[str, Rows] = {}
    for row in found:
        networks.setdefault(row["network"], {})[row["policy"]] = row
    for one in (_beside, _of_ours, _planned):
        yield from (f"| {' | '.join(cells)} |" for cells in one(networks))
        yield ""


def _head(*titles: str) -> Iterator[Sequence[str]]:
    yield titles
    yield ("---",) * len(titles)


def _beside(networks: dict[str, Rows]) -> Iterator[Sequence[str]]:
    """Bytes, and in brackets modelled seconds, as multiples of ours; where there are none, why."""
    others = [name for name in NAMES if name != OURS and any(name in own for own in networks.values())]
    yield from _head("network", "ours: MB, launches, copies", *others)
    for network, own in networks.items():
        ours = own.get(OURS)
        if ours is not None:
            copies = ours["copies_of_scope"] + ours["copies_of_layout"]
            first = f"{_moved(ours) / _MB:.1f}, {ours['launches']}, {copies}"
            yield network, first, *(_multiple(own.get(name), ours) for name in others)


def _moved(row: Row) -> float:
    return float(row["image_bytes"] + row["buffer_bytes"])


def _multiple(row: Row | None, ours: Row) -> str:
    if row is None:
        return "not asked for"
    if "fails" in row:
        return str(row["fails"])
    return f"{_moved(row) / _moved(ours):.2f} ({row['modelled_seconds'] / ours['modelled_seconds']:.2f})"


def _of_ours(networks: dict[str, Rows]) -> Iterator[Sequence[str]]:
    images, buffers = (f"{kind}: MB read, written" for kind in ("images", "buffers"))
    copies = "copies of scope, of layout: number, MB"
    yield from _head(
        "network", "launches", copies, images, buffers, "violations", "padded, free", "peak MB", "gap", "seconds"
    )
    for network, own in networks.items():
        row = own.get(OURS)
        if row is not None:
            kinds = [f"{row[f'copies_of_{k}']}, {row[f'bytes_copied_of_{k}'] / _MB:.1f}" for k in ("scope", "layout")]
            yield (
                network,
                str(row["launches"]),
                "; ".join(kinds),
                *(_read_and_written(row, kind) for kind in ("image", "buffer")),
                str(row["violations"]),
                f"{row['padded']}, {row['padded_for_free']}",
                f"{row['peak_bytes'] / _MB:.1f}",
                f"{row['gap']:.2g}",
                f"{row['seconds']:.1f}",
            )


def _read_and_written(row: Row, kind: str) -> str:
    written = row[f"{kind}_bytes_written"]
    return f"{(row[f'{kind}_bytes'] - written) / _MB:.1f}, {written / _MB:.1f}"


def _planned(networks: dict[str, Rows]) -> Iterator[Sequence[str]]:
    """Bytes as the planner counts them."""
    yield from _head("bytes, MB", LEAST, OURS, "best policy", f"best policy over {LEAST}")
    for network, own in networks.items():
        policies = [own[policy.name]["planned_bytes"] for policy in POLICIES if policy.name in own]
        if policies and LEAST in own and OURS in own:
            least, ours, best = own[LEAST]["planned_bytes"], own[OURS]["planned_bytes"], min(policies)
            yield network, *(f"{value / _MB:.1f}" for value in (least, ours, best)), f"{best / least:.2f}"
