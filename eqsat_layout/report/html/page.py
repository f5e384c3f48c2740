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
from eqsat_layout.report.figures import format_bytes, format_seconds, spanned
from eqsat_layout.report.html.data import layout_colours, page_data
from eqsat_layout.report.html.picture import Picture

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

_TOOLS: Final = """
<nav class="tools" aria-label="Tools">
<input type="search" id="search" placeholder="Search ops, names, layouts" aria-label="Search ops, names, layouts"
 aria-keyshortcuts="/">
<span id="found" role="status"></span>
<span class="group"><button type="button" id="previous" aria-keyshortcuts="p">&lsaquo; previous change</button>
<button type="button" id="next" aria-keyshortcuts="n">next change &rsaquo;</button></span>
<span class="group" role="group" aria-label="Which program is shown">
<button type="button" data-show="before">Before</button>
<button type="button" data-show="both">Both</button>
<button type="button" data-show="after">After</button></span>
<label><input type="checkbox" id="fold" checked> fold repeats</label>
<span class="group"><button type="button" data-zoom="0.8" aria-label="Smaller">&minus;</button>
<button type="button" data-zoom="0" aria-label="Original size">1:1</button>
<button type="button" data-zoom="1.25" aria-label="Larger">+</button></span>
</nav>"""

_DETAILS: Final = """
<aside id="details" aria-label="The chosen op" aria-live="polite"><p class="hint">Choose an op: click it, or go to a
drawing with Tab and move with the arrow keys. <kbd>n</kbd> and <kbd>p</kbd> lead to the next and the previous change,
<kbd>/</kbd> to the search, <kbd>Esc</kbd> back to this text.</p></aside>"""

_SHOWN_TRANSFORMS: Final = 5
_SHOWN_CHANGES: Final = 12


@dataclass(frozen=True)
class Summary:
    """What stands around the pictures.

    ``figures``: name, value, remark. ``transforms``: tensor, layouts, bytes, seconds, reason. ``unchanged``: why parts
    of the program are left as written. ``plain``: names of the layouts that Relax itself has.
    """

    title: str
    figures: Sequence[tuple[str, str, str]]
    changes: Sequence[Change]
    transforms: Sequence[tuple[str, str, int, float, str]]
    notes: Sequence[str]
    plain: Sequence[str] = ()
    unchanged: Sequence[str] = ()


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
        '<div class="first">',
        *_changes(summary.changes, summary.unchanged),
        *_transforms(summary.transforms),
        "</div>",
        *_notes(summary.notes),
        "</header>",
        _TOOLS,
        *_legend(colours, pictures),
        '<div class="work"><main id="drawings"><noscript>The drawings need JavaScript.</noscript></main>',
        _DETAILS,
        "</div>",
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


def _changes(changes: Sequence[Change], unchanged: Sequence[str]) -> Iterator[str]:
    changed = [change for change in changes if not change.is_kept]
    title = "What changes, the largest savings first" if changed else "Nothing changes"
    yield f'<section class="changes"><h2>{title}</h2>'
    yield from (f"<p>{escape(line)}.</p>" for line in unchanged)
    followers = [change for change in changed if change.is_follower] if len(changed) > _SHOWN_CHANGES else []
    yield from _table([change for change in changed if change not in followers], changed)
    if followers:
        count = f"{sum(len(change.names) for change in followers):,} more ops in {len(followers)} rows"
        yield f"<details><summary>{count} take the layout of their neighbours, at the same cost</summary>"
        yield from (*_table(followers, changed), "</details>")
    yield from _kept([change for change in changes if change.is_kept])
    yield "</section>"


def _table(changes: Sequence[Change], all_of_them: Iterable[Change]) -> Iterator[str]:
    if changes:
        yield '<div class="wide"><table><thead><tr><th class="n">ops<th>op<th>was<th>is now<th class="n each">before'
        yield '<th class="n each">after<th class="n">saved<th class="each">cost<th class="why">why</tr></thead><tbody>'
        most = max(change.before for change in all_of_them) or 1.0
        yield from (_change(change, most) for change in changes)
        yield "</tbody></table></div>"


def _kept(changes: Sequence[Change]) -> Iterator[str]:
    """What stays as written, the dearest first, in one line."""
    if changes:
        ordered = sorted(changes, key=lambda change: -change.after)
        names = (f"{len(c.names):,}&nbsp;{_button(c)} ({format_seconds(c.after)})" for c in ordered)
        yield f'<p class="kept">As written: {", ".join(names)}.</p>'


def _button(change: Change) -> str:
    """Leads to the first of its ops."""
    first = escape(change.names[0] if change.names else "", quote=True)
    data = f'data-op="{escape(change.op, quote=True)}" data-name="{first}"'
    return f'<button type="button" {data}>{escape(change.op)}</button>'


def _change(change: Change, most: float) -> str:
    """A row; its bars are long by the costs, ``most`` is the longest."""
    bars = f'<i class="was" style="width:{change.before / most:.1%}"></i>'
    bars += f'<i class="is" style="width:{min(1.0, change.after / most):.1%}"></i>'
    return (
        f'<tr><td class="n">{len(change.names):,}<td>{_button(change)}'
        f"<td>{escape(change.was)}<td>{escape(change.now)}"
        f'<td class="n each">{format_seconds(change.before)}<td class="n each">{format_seconds(change.after)}'
        f'<td class="n">{_saved(change)}<td class="bars each" aria-hidden="true">{bars}'
        f'<td class="why">{escape(change.why)}</tr>'
    )


def _saved(change: Change) -> str:
    if change.saved == 0:
        return "0"
    return format_seconds(change.saved).replace("-", "\N{MINUS SIGN}")


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
    if any(n.kind == "transform" for p in pictures for n in p.nodes):
        yield '<li><i class="move"></i>layout transform</li>'
    yield '<li><i class="kernel"></i>one kernel</li></ul>'


def _transforms(rows: Sequence[tuple[str, str, int, float, str]]) -> Iterator[str]:
    """Those that are alike in one row, the dearest first; where there are many, the others behind a click."""
    yield '<section class="stays"><h2>Layout transforms that stay, and what they cost</h2>'
    alike: dict[tuple[str, int, str], list[tuple[str, float]]] = {}
    for tensor, layouts, size, cost, reason in rows:
        alike.setdefault((layouts, size, reason), []).append((tensor, cost))
    ordered = sorted(alike.items(), key=lambda item: -sum(cost for _, cost in item[1]))
    yield from ("<ul>", *map(_transform, ordered[:_SHOWN_TRANSFORMS]), "</ul>") if rows else ("<p>None.</p>",)
    rest = ordered[_SHOWN_TRANSFORMS:]
    if rest:
        together = format_seconds(sum(cost for _, own in rest for _, cost in own))
        yield f"<details><summary>{sum(len(own) for _, own in rest):,} more, {together} together</summary><ul>"
        yield from map(_transform, rest)
        yield "</ul></details>"
    yield "</section>"


def _transform(alike: tuple[tuple[str, int, str], list[tuple[str, float]]]) -> str:
    (layouts, size, reason), own = alike
    times = f"{len(own):,} times " if len(own) > 1 else ""
    cost, moved = format_seconds(sum(cost for _, cost in own)), format_bytes(size * len(own))
    names = escape(spanned([tensor for tensor, _ in own]))
    head = f"{times}<b>{names}</b> {escape(layouts)}, {cost}, {moved} read and written"
    return f"<li>{head}<br><small>{escape(reason)}</small></li>"


def _notes(notes: Sequence[str]) -> Iterator[str]:
    if notes:
        yield f'<details class="notes"><summary>{len(notes)} note{"" if len(notes) == 1 else "s"}</summary><ul>'
        yield from (f"<li>{escape(note)}</li>" for note in notes)
        yield "</ul></details>"
