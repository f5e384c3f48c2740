"""A plan as one HTML file: what it changes, the program before and after, and what is known of every op.

In: pictures and the figures of a plan as plain data. Out: the text of a page that needs nothing else: it is laid out by
a library that is inside of it (dagre, MIT licence), and its own policy forbids it to ask for anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Final

from eqsat_layout.report.changes import Change
from eqsat_layout.report.html.data import layout_colours, page_data
from eqsat_layout.report.html.picture import Picture
from eqsat_layout.report.text import format_bytes, format_seconds

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

_TOOLS: Final = """
<nav class="tools" aria-label="Tools">
<input type="search" id="search" placeholder="Search ops, names, layouts ( / )" aria-label="Search">
<span id="found" role="status"></span>
<span class="group"><button type="button" id="previous" title="p">&lsaquo; change</button>
<button type="button" id="next" title="n">change &rsaquo;</button></span>
<span class="group" role="radiogroup" aria-label="Which program">
<button type="button" role="radio" data-side="before">Before</button>
<button type="button" role="radio" data-side="both">Both</button>
<button type="button" role="radio" data-side="after">After</button></span>
<label><input type="checkbox" id="fold" checked> fold repeats</label>
<span class="group"><button type="button" data-zoom="0.8" aria-label="Smaller">&minus;</button>
<button type="button" data-zoom="0" aria-label="Original size">1:1</button>
<button type="button" data-zoom="1.25" aria-label="Larger">+</button></span>
</nav>"""

_DETAILS: Final = """
<aside id="details" aria-label="The chosen op" aria-live="polite"><p class="hint">Choose an op: click it, or go to a
drawing with Tab and move with the arrow keys. <kbd>n</kbd> and <kbd>p</kbd> lead to the next and the previous change,
<kbd>/</kbd> to the search.</p></aside>"""


@dataclass(frozen=True)
class Summary:
    """What stands around the pictures.

    ``figures``: name, value, remark. ``transforms``: tensor, index map, bytes, seconds, reason. ``plain``: names of
    the layouts that Relax itself has.
    """

    title: str
    figures: Sequence[tuple[str, str, str]]
    changes: Sequence[Change]
    transforms: Sequence[tuple[str, str, int, float, str]]
    notes: Sequence[str]
    plain: Sequence[str] = ()


def render(before: Sequence[Picture], after: Sequence[Picture], summary: Summary) -> str:
    """The page."""
    pictures = [*before, *after]
    colours = layout_colours(pictures, summary.plain)
    data = json.dumps(page_data(before, after, colours), separators=(",", ":"), ensure_ascii=False)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(summary.title)}</title><style>{_asset('page.css')}</style></head><body>",
        f"<header><h1>{escape(summary.title)}</h1>",
        *_figures(summary.figures),
        *_changes(summary.changes),
        *_notes(summary.notes),
        "</header>",
        _TOOLS,
        *_legend(colours, pictures),
        '<div class="work"><main id="drawings"><noscript>The drawings need JavaScript.</noscript></main>',
        _DETAILS,
        "</div>",
        *_transforms(summary.transforms),
        f'<script type="application/json" id="data">{data.replace("<", chr(92) + "u003c")}</script>',
        f"<!--\n{_asset('dagre.LICENSE.txt')}-->",
        *(f"<script>{_asset(name)}</script>" for name in ("dagre.min.js", "drawing.js", "page.js")),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _figures(figures: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    yield '<dl class="figures">'
    for name, value, remark in figures:
        yield f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(remark)}</small></dd></div>"
    yield "</dl>"


def _changes(changes: Sequence[Change]) -> Iterator[str]:
    if not changes:
        return
    yield '<section class="changes"><h2>What changes, the largest savings first</h2><div class="wide"><table>'
    yield '<thead><tr><th class="n">ops<th>op<th>was<th>is now<th class="n">before<th class="n">after'
    yield '<th class="n">saved<th></tr></thead><tbody>'
    most = max((c.before for c in changes), default=0.0) or 1.0
    for change in changes:
        saved = "stays" if change.is_kept else format_seconds(change.saved)
        first = escape(change.names[0] if change.names else "", quote=True)
        bars = f'<i class="was" style="width:{change.before / most:.1%}"></i>'
        bars += f'<i class="is" style="width:{min(1.0, change.after / most):.1%}"></i>'
        yield (
            f'<tr data-op="{escape(change.op, quote=True)}" data-name="{first}"><td class="n">{len(change.names):,}'
            f"<td>{escape(change.op)}<td>{escape(change.was)}<td>{escape(change.now)}"
            f'<td class="n">{format_seconds(change.before)}<td class="n">{format_seconds(change.after)}'
            f'<td class="n">{saved}<td class="bars" aria-hidden="true">{bars}</tr>'
        )
    yield "</tbody></table></div></section>"


def _legend(colours: Mapping[str, int], pictures: Iterable[Picture]) -> Iterator[str]:
    used = [n.layout for p in pictures for n in p.nodes]
    yield '<ul class="legend" aria-label="Layouts">'
    plain = [name for name, colour in colours.items() if colour == 0]
    if plain:
        count = sum(map(used.count, plain))
        yield f'<li><i class="c0"></i>as Relax has it: {escape(", ".join(plain))} <small>{count}</small></li>'
    for name, colour in colours.items():
        if colour:
            yield f'<li><i class="c{colour}"></i>{escape(name)} <small>{used.count(name)}</small></li>'
    yield '<li><i class="move"></i>layout transform</li><li><i class="kernel"></i>one kernel</li></ul>'


def _transforms(rows: Sequence[tuple[str, str, int, float, str]]) -> Iterator[str]:
    yield '<section class="text"><h2>Layout transforms that stay</h2>'
    if not rows:
        yield "<p>None.</p></section>"
        return
    yield '<div class="wide"><table><thead><tr><th>tensor<th>index map<th>traffic<th>cost<th>why it stays</tr></thead>'
    yield "<tbody>"
    for tensor, index_map, size, cost, reason in rows:
        figures = f"<td>{format_bytes(size)}<td>{format_seconds(cost)}"
        yield f"<tr><td>{escape(tensor)}<td><code>{escape(index_map)}</code>{figures}<td>{escape(reason)}</tr>"
    yield "</tbody></table></div></section>"


def _notes(notes: Sequence[str]) -> Iterator[str]:
    if notes:
        yield f'<details class="notes"><summary>{len(notes)} note{"" if len(notes) == 1 else "s"}</summary><ul>'
        yield from (f"<li>{escape(note)}</li>" for note in notes)
        yield "</ul></details>"
