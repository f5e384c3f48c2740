"""A plan as one HTML file: the program before and after, layouts in colour, what every edge moves, and why.

In: pictures and the figures of a plan as plain data. Out: the text of a page that needs nothing else: no network, no
scripts from elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from eqsat_layout.report.html.picture import Picture, PictureNode
from eqsat_layout.report.html.placement import BoxPlacement, place
from eqsat_layout.report.html.style import SCRIPT, STYLE
from eqsat_layout.report.text import format_bytes, format_seconds

_WIDTH, _HEIGHT, _ROW, _GUTTER, _TRACK = 230, 44, 78, 28, 9
_COLOURS = 9
"""Layouts with a colour of their own; the rest share the last."""


@dataclass(frozen=True)
class Summary:
    """What stands around the pictures.

    ``figures``: name, value, remark. ``transforms``: tensor, index map, bytes, seconds, reason.
    """

    title: str
    figures: Sequence[tuple[str, str, str]]
    transforms: Sequence[tuple[str, str, int, float, str]]
    notes: Sequence[str]


def render(before: Sequence[Picture], after: Sequence[Picture], summary: Summary) -> str:
    """The page."""
    colours = _colours([*before, *after])
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(summary.title)}</title><style>{STYLE}</style></head><body>",
        f"<header><h1>{escape(summary.title)}</h1>",
        *_figures(summary.figures),
        *_legend(colours, [*before, *after]),
        "</header>",
        '<nav class="tools" aria-label="Zoom"><button type="button" data-zoom="1.25">+</button>'
        '<button type="button" data-zoom="0.8">−</button><button type="button" data-zoom="0">1:1</button>'  # noqa: RUF001
        '<label><input type="checkbox" id="together" checked> scroll together</label></nav>',
        '<main class="sides">',
        *_side("Before", before, colours),
        *_side("After", after, colours),
        "</main>",
        *_transforms(summary.transforms),
        *_notes(summary.notes),
        f"<script>{SCRIPT}</script></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _colours(pictures: Iterable[Picture]) -> dict[str, int]:
    """The colour of every layout, the most frequent first; what Relax itself has is colour 0."""
    count = Counter(n.layout for p in pictures for n in p.nodes if n.layout)
    ranked = sorted(count, key=lambda name: (not _is_plain(name), -count[name], name))
    plain = [name for name in ranked if _is_plain(name)]
    others = [name for name in ranked if not _is_plain(name)]
    return dict.fromkeys(plain, 0) | {name: min(i + 1, _COLOURS) for i, name in enumerate(others)}


def _is_plain(name: str) -> bool:
    return name in ("NCHW", "NCW", "NCDHW") or "ABCDEFGHIJKLMNOPQRSTUVWXYZ".startswith(name)


def _figures(figures: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    yield '<dl class="figures">'
    for name, value, remark in figures:
        yield f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(remark)}</small></dd></div>"
    yield "</dl>"


def _legend(colours: Mapping[str, int], pictures: Iterable[Picture]) -> Iterator[str]:
    used = Counter(n.layout for p in pictures for n in p.nodes if n.layout)
    yield '<ul class="legend" aria-label="Layouts">'
    plain = sum(used[name] for name, colour in colours.items() if colour == 0)
    if plain:
        yield f'<li><i class="c0"></i>as Relax has it (row-major) <small>{plain}</small></li>'
    for name, colour in colours.items():
        if colour:
            yield f'<li><i class="c{colour}"></i>{escape(name)} <small>{used[name]}</small></li>'
    yield '<li><i class="move"></i>layout transform</li></ul>'


def _side(title: str, pictures: Sequence[Picture], colours: Mapping[str, int]) -> Iterator[str]:
    yield f'<section class="side"><h2>{title}</h2><div class="scroll" tabindex="0">'
    for picture in pictures:
        if len(pictures) > 1:
            yield f"<h3>{escape(picture.title)}</h3>"
        yield from _drawing(picture, colours, f"{title}: {picture.title}")
    yield "</div></section>"


def _drawing(picture: Picture, colours: Mapping[str, int], label: str) -> Iterator[str]:
    placement = place(len(picture.nodes), [(e.source, e.target) for e in picture.edges])
    frame = _Frame(placement)
    width, height = frame.size
    yield (
        f'<svg role="img" aria-label="{escape(label, quote=True)}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" data-width="{width}" data-height="{height}">'
    )
    most = max((e.bytes for e in picture.edges), default=1) or 1
    for edge in picture.edges:
        heavy = 1.2 + 4.3 * (edge.bytes / most) ** 0.5
        path = frame.path(edge.source, edge.target)
        yield f'<path class="edge" d="{path}" stroke-width="{heavy:.1f}"/>'
    for edge in picture.edges:
        x, y = frame.label_place(edge.source, edge.target)
        yield f'<text class="bytes" x="{x}" y="{y}">{escape(format_bytes(edge.bytes))}</text>'
    for i, node in enumerate(picture.nodes):
        yield from _box(node, *frame.corner(i), colours.get(node.layout, 0))
    yield "</svg>"


def _box(node: PictureNode, x: int, y: int, colour: int) -> Iterator[str]:
    kind = {"transform": "move", "parameter": "end", "result": "end"}.get(node.kind, f"c{colour}")
    yield f'<g class="node {node.kind} {kind}" transform="translate({x},{y})">'
    yield f"<title>{escape(_tooltip(node))}</title>"
    yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
    if node.kind == "op":
        yield f'<rect class="stripe" width="6" height="{_HEIGHT}" rx="3"/>'
    name = node.op if node.kind not in ("parameter", "result") else f"{node.op} {node.label}"
    layout = "" if node.kind == "transform" else node.layout
    room = 33 - len(layout) if layout else 34
    yield f'<text class="op" x="14" y="18">{escape(_short(name, max(room, 10)))}</text>'
    if layout:
        yield f'<text class="layout" x="{_WIDTH - 10}" y="18">{escape(_short(layout, 18))}</text>'
    cost = format_seconds(node.cost) if node.cost else ""
    weights = f"+{format_bytes(sum(node.constants))}" if sum(node.constants) >= 1024 else ""
    yield f'<text class="small" x="14" y="35">{escape(_short(node.shape.removesuffix(" float32"), 22))}</text>'
    right = "  ".join(filter(None, (weights, cost)))
    yield f'<text class="small right" x="{_WIDTH - 10}" y="35">{escape(right)}</text>'
    yield "</g>"


def _tooltip(node: PictureNode) -> str:
    lines = [f"{node.op}  {node.label}".strip(), f"{node.shape}  {node.layout}".strip()]
    lines += [f"modelled {format_seconds(node.cost)}"] if node.cost else []
    lines += [f"{len(node.constants)} constants, {format_bytes(sum(node.constants))}"] if node.constants else []
    return "\n".join([*lines, *([node.remark] if node.remark else [])])


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


class _Frame:
    """Pixels for rows, columns and tracks."""

    def __init__(self, placement: BoxPlacement):
        self._placement = placement
        self._left: list[int] = []
        x = 12
        for tracks in placement.widths:
            self._left.append(x)
            x += _WIDTH + _GUTTER + tracks * _TRACK
        self._width = x

    @property
    def size(self) -> tuple[int, int]:
        return self._width + 40, self._placement.size[0] * _ROW + 12

    def corner(self, node: int) -> tuple[int, int]:
        """Top left of a box."""
        return self._left[self._placement.columns[node]], 6 + self._placement.rows[node] * _ROW

    def path(self, source: int, target: int) -> str:
        """From the bottom of one box to the top of another, between the rows and along a track of its own."""
        (sx, sy), (tx, ty) = self.corner(source), self.corner(target)
        x0, y0, x1, y1 = sx + _WIDTH // 2, sy + _HEIGHT, tx + _WIDTH // 2, ty
        track = self._placement.tracks.get((source, target))
        if track is None:
            middle = (y0 + y1) // 2
            return f"M{x0} {y0}C{x0} {middle} {x1} {middle} {x1} {y1}"
        gutter, number = track
        x = self._left[gutter] + _WIDTH + 14 + number * _TRACK
        a, b = y0 + 12, y1 - 12
        return f"M{x0 + 60} {y0}V{a - 6}q0 6 6 6H{x - 6}q6 0 6 6V{b - 6}q0 6 -6 6H{x1 + 66}q-6 0 -6 6V{y1}"

    def label_place(self, source: int, target: int) -> tuple[int, int]:
        """Where the bytes of an edge are written."""
        x, y = self.corner(target)
        beside = (source, target) in self._placement.tracks
        return x + _WIDTH // 2 + (66 if beside else 7), y - 15


def _transforms(rows: Sequence[tuple[str, str, int, float, str]]) -> Iterator[str]:
    yield '<section class="text"><h2>Layout transforms that stay</h2>'
    if not rows:
        yield "<p>None.</p></section>"
        return
    yield "<table><thead><tr><th>tensor<th>index map<th>traffic<th>cost<th>why it stays</tr></thead><tbody>"
    for tensor, index_map, size, cost, reason in rows:
        figures = f"<td>{format_bytes(size)}<td>{format_seconds(cost)}"
        yield f"<tr><td>{escape(tensor)}<td><code>{escape(index_map)}</code>{figures}<td>{escape(reason)}</tr>"
    yield "</tbody></table></section>"


def _notes(notes: Sequence[str]) -> Iterator[str]:
    if notes:
        yield '<section class="text"><h2>Notes</h2><ul>'
        yield from (f"<li>{escape(note)}</li>" for note in notes)
        yield "</ul></section>"
