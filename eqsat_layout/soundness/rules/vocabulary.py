"""What random models are made of: ops, views, pads, crops and formats over a family of small shapes.

In: a seed, and the names of ops that rules ask for. Out: :class:`Vocabulary`. Ops are Relax ops, read by the importer
like any program's, so that what is fuzzed is what runs; their attributes and operands are drawn from their schemas.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eqsat_layout.graph.borders import Border, Part
from eqsat_layout.graph.graph import Frozen, Signature
from eqsat_layout.graph.part_calls import part_calls
from eqsat_layout.maps import UNDEF, Digit, Format, IndexMap
from eqsat_layout.soundness.rules.instance_traits import calls_in, parts_in
from eqsat_layout.soundness.rules.instances import Instances
from eqsat_layout.soundness.rules.known_ops import KnownOps, known_ops
from eqsat_layout.soundness.rules.memories import ARRAYS
from eqsat_layout.soundness.rules.ops import Shape, named_calls, plain_calls, sampled_calls, why_never_run
from eqsat_layout.soundness.rules.runners import RunnableOp
from eqsat_layout.soundness.rules.schema import LARGEST_RANK, OpCall
from eqsat_layout.soundness.rules.solver import Instance

FAMILIES: tuple[Shape, ...] = (
    (4,),
    (2, 2),
    (2, 3),
    (4, 4),
    (2, 3, 4),
    (2, 2, 2),
    (1, 4, 2),
    (3, 1, 4),
    (1, 4, 4, 4),
    (2, 4, 3, 3),
    (2, 1, 2, 1, 2),
    (1, 2, 1, 2, 1, 2),
    (1,),
)
"""Shapes that vocabularies are built around: square ones, where maps that differ give equal shapes; units; images."""

FILLS = (0.5, 2.0, -0.5, float("inf"), float("-inf"), 127.0)
"""What pads hold besides -1, 0 and 1."""
_UNITS = 0.2
"""How often a view puts in, or leaves out, an axis of one element."""
FROZEN = 2
"""Ops that are frozen, besides those that are named."""


@dataclass(frozen=True)
class Vocabulary:
    """Ops by key, views, pads and crops by key, formats by the shape of their tensor; ``missing``: ops that can't be
    built or run, with the reason. ``attributes``: of each op that is named, how many choices of attributes there are.
    ``instances``: by the keys of rules, ops, views, pads and crops for their variables that fit together.
    """

    shape: Shape
    wide: Shape
    signatures: dict[str, Signature]
    parts: tuple[Part, ...]
    formats: dict[Shape, tuple[Format, ...]]
    missing: dict[str, str] = field(default_factory=dict)
    interpreters: dict[str, RunnableOp] = field(default_factory=dict)
    attributes: dict[str, int] = field(default_factory=dict)
    instances: dict[str, list[dict[str, str | Part]]] = field(default_factory=dict)


def make_vocabulary(
    shape: Shape, seed: int, wanted: Iterable[str] = (), instances: Instances | None = None, *, others: bool = True
) -> Vocabulary:
    """The vocabulary around ``shape``; ``wanted``: names of Relax ops that must be in it; ``instances``: of bodies;
    ``others``: with ops that nobody named."""
    rng = random.Random(f"{shape} {seed}")
    wide = tuple(e + w for e, w in zip(shape, _widths(shape, rng), strict=True))
    parts = tuple(_parts(shape, wide, rng))
    viewed = [made for part in parts if isinstance(part, IndexMap) and (made := _made_shape(part)) not in (shape, wide)]
    wanted = tuple(wanted)
    calls = [*plain_calls(shape, wide), *sampled_calls(shape, rng)] if others else []
    missing: dict[str, str] = {}
    for name in sorted(set(wanted)):
        found = named_calls(name, shape, wide, viewed, rng)
        calls += found
        if not found:
            missing[name] = why_never_run(name)
    drawn = {} if instances is None else instances.draw([shape, wide, *viewed], parts, _view, rng)
    calls += calls_in(drawn)
    parts = tuple(dict.fromkeys([*parts, *parts_in(drawn)]))
    known = known_ops(calls, wanted)
    called = {call.name for call in known.attributes} | {call.name for part in parts for call in part_calls(part)}
    for name, why in known.refused.items():
        if name not in called:
            missing.setdefault(name, why)
    for name in [name for name in wanted if name not in called]:
        missing.setdefault(name, "programs have it as a view, a pad or a crop, which are named otherwise")
    signatures = {**known.signatures, **_frozen(known, frozenset(wanted), rng)}
    shapes = {shape, wide, *(_made_shape(part) for part in parts)}
    shapes |= {tuple(int(e) for e in t.shape) for s in signatures.values() if s.is_tuple for t in s.results if t}
    pads = [part for part in parts if isinstance(part, Border) and part.fill is not None]
    formats = {s: tuple(_formats(s, [pad for pad in pads if pad.shape == s], rng)) for s in sorted(shapes)}
    return Vocabulary(
        shape, wide, signatures, parts, formats, missing, known.interpreters, known.varied(), _named(drawn, known)
    )


def _frozen(known: KnownOps, wanted: Collection[str], rng: random.Random) -> dict[str, Signature]:
    """Some ops once more, frozen as they stand; of those that are named, one each."""
    fit = [s for s in known.signatures.values() if s.flows and not s.is_tuple]
    chosen = {s.name: s for s in rng.sample(fit, len(fit)) if s.name in wanted}
    drawn = rng.sample(fit, min(FROZEN, len(fit)))
    beside = [s for s in fit if s not in drawn and s.operands in [other.operands for other in drawn]]
    drawn += rng.sample(beside, min(1, len(beside)))  # that two are frozen says nothing of two ops on one tensor
    found = {}
    for signature in (*chosen.values(), *drawn):
        operands, results = (tuple(t.row_major for t in ts if t) for ts in (signature.operands, signature.results))
        key = f"{signature.key} frozen"
        found[key] = replace(signature, key=key, frozen=Frozen(operands, results))
    return found


def _named(drawn: Mapping[str, Sequence[Instance]], known: KnownOps) -> dict[str, list[dict[str, str | Part]]]:
    """Instances with the keys of signatures for calls; without the calls that are none, such as could not be run."""
    found: dict[str, list[dict[str, str | Part]]] = {}
    for rule, instances in drawn.items():
        for instance in instances:
            names = {v: known.attributes.get(c, "") if isinstance(c, OpCall) else c for v, c in instance.items()}
            found.setdefault(rule, []).append({v: name for v, name in names.items() if name})
    return found


# ---- views, pads, crops ---------------------------------------------------------------------------------------------


def _widths(shape: Shape, rng: random.Random) -> list[int]:
    widths = [rng.choice((0, 0, 1)) for _ in shape]
    widths[rng.randrange(len(shape))] = rng.choice((1, 2))
    return widths


def _parts(shape: Shape, wide: Shape, rng: random.Random) -> list[Part]:
    views: list[IndexMap] = []
    for start in (shape, wide):
        views.append(IndexMap.identity(start))
        for _ in range(4 if start == shape else 2):
            view = _view(start, rng)
            inverse = view.inverse()
            views += [view] if inverse is None else [view, inverse]
            follower = _view(tuple(int(e) for e in view.result_shape), rng)
            views.append(follower)
    parts: list[Part] = list(dict.fromkeys(views))
    added = [big - small for small, big in zip(shape, wide, strict=True)]
    for lows in ([0] * len(added), added):  # two windows of the same shapes
        widths = tuple((lo, n - lo) for lo, n in zip(lows, added, strict=True))
        parts += [Border(shape, widths, fill) for fill in (-1.0, 0.0, 1.0, None, rng.choice(FILLS))]
    return [*parts, *_halfway(shape, wide, rng)]


def _halfway(shape: Shape, wide: Shape, rng: random.Random) -> list[Border]:
    """Borders to a shape between two, and from there: pads and crops of one tensor are of several sizes."""
    between = tuple(rng.randint(small, big) for small, big in zip(shape, wide, strict=True))
    if between in (shape, wide):
        return []
    pairs = [[(0, b - a) for a, b in zip(*ends, strict=True)] for ends in ((shape, between), (between, wide))]
    return [Border(s, tuple(w), fill) for s, w in zip((shape, between), pairs, strict=True) for fill in (0.0, None)]


def _view(shape: Shape, rng: random.Random) -> IndexMap:
    """Axes split at random, the digits shuffled, perhaps two neighbours fused, and an axis of one element put in or
    left out; or only the last, so that shapes broadcast in another way."""
    rows = [[Digit(axis, 1, extent)] for axis, extent in enumerate(shape)]
    units = rng.random() < _UNITS
    if not units or rng.random() < 0.5:
        rows = _shuffled_rows(shape, rng)
    ones = [at for at, row in enumerate(rows) if math.prod(d.extent for d in row) == 1]
    if units and ones and len(rows) > 1 and rng.random() < 0.5:
        del rows[rng.choice(ones)]
    elif units and len(rows) < LARGEST_RANK:
        rows.insert(rng.randint(0, len(rows)), [])
    return IndexMap.make(shape, rows)


def _shuffled_rows(shape: Shape, rng: random.Random) -> list[list[Digit]]:
    digits: list[Digit] = []
    for axis, extent in enumerate(shape):
        inner = rng.choice([d for d in range(1, extent + 1) if extent % d == 0])
        split = 1 < inner < extent and rng.random() < 0.5
        digits += [Digit(axis, inner, extent // inner), Digit(axis, 1, inner)] if split else [Digit(axis, 1, extent)]
    rng.shuffle(digits)
    rows = [[d] for d in digits]
    if len(rows) > 1 and rng.random() < 0.3:
        at = rng.randrange(len(rows) - 1)
        rows[at : at + 2] = [rows[at] + rows[at + 1]]
    return rows


def _made_shape(part: Part) -> Shape:
    return tuple(int(e) for e in part.result_shape)


# ---- formats --------------------------------------------------------------------------------------------------------


def _formats(shape: Shape, pads: Sequence[Border], rng: random.Random) -> list[Format]:
    """Row-major, orders of axes, and blocks and borders with the fills 0, 1 and undef; one of the borders holds those
    of all ``pads`` of such a tensor, so that what several of them make lies in one buffer."""
    found = [Format.row_major(shape)]
    if not shape or not math.prod(shape):
        return found
    found += [Format.make(_view(shape, rng)) for _ in range(2)]
    axis = rng.randrange(len(shape))
    one_side = [(0, 0)] * len(shape)
    one_side[axis] = (0, 1)
    around = [(1, 1) if a == axis else (0, 0) for a in range(len(shape))]
    for pad in pads:
        around = [(max(lo, a), max(hi, b)) for (lo, hi), (a, b) in zip(around, pad.widths, strict=True)]
    for padding in (one_side, around):
        padded = [e + lo + hi for e, (lo, hi) in zip(shape, padding, strict=True)]
        index_map = rng.choice((IndexMap.identity(padded), _view(tuple(padded), rng)))
        fill = rng.choice((0.0, 1.0))
        found += [Format.make(index_map, padding=padding, fill=f) for f in (fill, UNDEF)]
    elsewhere = [placed for fmt in found if (placed := ARRAYS.placed(fmt, "float32")) is not None]
    found += rng.sample(elsewhere, min(1, len(elsewhere)))
    return list(dict.fromkeys(found))
