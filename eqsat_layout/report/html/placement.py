"""Where the boxes of a picture go: rows by longest path, columns by what feeds them (after Sugiyama et al. 1981).

In: the number of nodes and their edges, earlier nodes first. Out: a row and a column for every node, and for every edge
that jumps rows a track of its own beside the boxes, so that no line crosses a box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class BoxPlacement:
    """``rows[i]``, ``columns[i]`` of node i. ``tracks[edge]``: (gutter, track) of an edge that jumps rows.

    Gutter g lies right of column g and has ``widths[g]`` tracks.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    tracks: dict[tuple[int, int], tuple[int, int]]
    widths: tuple[int, ...]

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return max(self.rows, default=-1) + 1, max(self.columns, default=-1) + 1


def place(nodes: int, edges: Sequence[tuple[int, int]]) -> BoxPlacement:
    """The placement of nodes 0.. with ``edges`` (source, target), source < target."""
    sources: list[list[int]] = [[] for _ in range(nodes)]
    users: list[list[int]] = [[] for _ in range(nodes)]
    for source, target in edges:
        sources[target].append(source)
        users[source].append(target)
    rows = [0] * nodes
    for i in range(nodes):
        rows[i] = max((rows[s] + 1 for s in sources[i]), default=0)
    for i in reversed(range(nodes)):
        if not sources[i] and users[i]:  # a late parameter stands over its user, not at the top
            rows[i] = min(rows[u] for u in users[i]) - 1
    columns = _columns(rows, sources)
    tracks, widths = _tracks(rows, columns, edges)
    return BoxPlacement(tuple(rows), tuple(columns), tracks, tuple(widths))


def _columns(rows: Sequence[int], sources: Sequence[Sequence[int]]) -> list[int]:
    """Each node under the source in the row above it, or as near to its sources as there is room."""
    columns = [0] * len(rows)
    taken: set[tuple[int, int]] = set()
    for i in sorted(range(len(rows)), key=lambda i: (rows[i], i)):
        above = [s for s in sources[i] if rows[s] == rows[i] - 1] or list(sources[i])
        wish = min((columns[s] for s in above), default=0)
        while (rows[i], wish) in taken:
            wish += 1
        columns[i] = wish
        taken.add((rows[i], wish))
    return columns


def _tracks(
    rows: Sequence[int], columns: Sequence[int], edges: Sequence[tuple[int, int]]
) -> tuple[dict[tuple[int, int], tuple[int, int]], list[int]]:
    """Tracks for edges over more than one row; two edges share one if their rows don't meet. Short edges go inside."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    ends: list[list[list[tuple[int, int]]]] = [[] for _ in range(max(columns, default=-1) + 1)]
    jumping = [(s, t) for s, t in dict.fromkeys(edges) if rows[t] - rows[s] > 1]
    for source, target in sorted(jumping, key=lambda e: (rows[e[1]] - rows[e[0]], e)):
        gutter = max(columns[source], columns[target])
        low, high = rows[source], rows[target]
        free = (n for n, used in enumerate(ends[gutter]) if all(high <= a or b <= low for a, b in used))
        track = next(free, len(ends[gutter]))
        if track == len(ends[gutter]):
            ends[gutter].append([])
        ends[gutter][track].append((low, high))
        found[source, target] = (gutter, track)
    return found, [len(tracks) for tracks in ends]
