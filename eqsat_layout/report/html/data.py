"""Pictures as the page's script reads them: short, and what many nodes have in common once.

In: pictures before and after. Out: plain data that JSON can hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from eqsat_layout.report.figures import format_bytes, format_seconds
from eqsat_layout.report.html.folds import folds_of
from eqsat_layout.report.html.picture import Picture, PictureNode

COLOURS: Final = 9
"""Layouts with a colour of their own; the rest share the last. Colour 0 is what Relax itself has."""


def page_data(before: Sequence[Picture], after: Sequence[Picture], colours: dict[str, int]) -> dict[str, Any]:
    """``facts``: what is shown of nodes; ``regions``: titles and pictures, whose nodes are [fact, name, binding,
    kernel], edges [source, target, bytes, width of the line], folds [first, period, count]."""
    facts: dict[Any, int] = {}
    regions = [
        {"title": a.title, "before": _picture(b, facts), "after": _picture(a, facts)}
        for b, a in zip(before, after, strict=True)
    ]
    return {"facts": list(facts), "regions": regions, "colours": colours}


def layout_colours(pictures: Iterable[Picture], plain: Iterable[str]) -> dict[str, int]:
    """The colour of every layout, the most frequent first; ``plain`` ones are 0."""
    count = Counter(n.layout for p in pictures for n in p.nodes if n.layout)
    own = set(plain)
    others = sorted((name for name in count if name not in own), key=lambda name: (-count[name], name))
    return dict.fromkeys(sorted(own & set(count)), 0) | {n: min(i + 1, COLOURS) for i, n in enumerate(others)}


def _picture(picture: Picture, facts: dict[Any, int]) -> dict[str, Any]:
    most = max((e.bytes for e in picture.edges), default=1) or 1
    return {
        "nodes": [
            (facts.setdefault(_facts(node), len(facts)), node.label, node.binding, node.kernel)
            for node in picture.nodes
        ],
        "edges": [
            (e.source, e.target, format_bytes(e.bytes), round(1.2 + 3.3 * (e.bytes / most) ** 0.5, 1))
            for e in picture.edges
        ],
        "folds": [(fold.first, fold.period, fold.count) for fold in folds_of(picture)],
    }


def _facts(node: PictureNode) -> tuple[Any, ...]:
    constants = f"{len(node.constants)}, {format_bytes(sum(node.constants))}" if node.constants else ""
    cost = format_seconds(node.cost) if node.cost else ""
    ways = tuple((way.how, way.layout, format_seconds(way.cost)) for way in node.ways)
    return (node.kind, node.op, node.layout, node.shape, cost, constants, node.operands, node.why, node.rules, ways)
