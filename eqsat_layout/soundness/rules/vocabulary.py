"""What random models are made of: ops, views, pads, crops and formats over a family of small shapes.

In: a seed, and the names of ops that rules ask for. Out: :class:`Vocabulary`. Ops are Relax ops, read by the importer
like any program's, so that what is fuzzed is what runs. A list of ops is no table of what they do to layouts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op as R

from eqsat_layout.errors import ILL_TYPED
from eqsat_layout.graph.borders import Border, Part
from eqsat_layout.graph.graph import Signature
from eqsat_layout.graph.importer import import_module
from eqsat_layout.maps import UNDEF, Digit, Format, IndexMap

Shape = tuple[int, ...]
Build = Callable[..., Any]

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
)
"""Shapes that vocabularies are built around: square ones, where maps that differ give equal shapes; units; images."""


@dataclass(frozen=True)
class Vocabulary:
    """Ops by key, views, pads and crops by key, formats by the shape of their tensor; ``missing``: ops that can't be
    built, with the reason."""

    shape: Shape
    wide: Shape
    signatures: dict[str, Signature]
    parts: tuple[Part, ...]
    formats: dict[Shape, tuple[Format, ...]]
    missing: dict[str, str] = field(default_factory=dict)


def make_vocabulary(shape: Shape, seed: int, wanted: Iterable[str] = ()) -> Vocabulary:
    """The vocabulary around ``shape``; ``wanted``: names of Relax ops that must be in it."""
    rng = random.Random(f"{shape} {seed}")
    wide = tuple(e + w for e, w in zip(shape, _widths(shape, rng), strict=True))
    calls = [*_plain_calls(shape), *_pointwise_calls(wide)]
    if len(shape) > 1:
        calls += _pointwise_calls(shape[::-1]) if shape[::-1] not in (shape, wide) else []
    missing: dict[str, str] = {}
    for name in wanted:
        found = _calls_by_name(name, shape)
        calls += found
        calls += _calls_by_name(name, wide) if found else []
        if not found:
            missing[name] = "no such op, or it does not take tensors only"
    signatures = _signatures(calls)
    parts = tuple(_parts(shape, wide, rng))
    shapes = {shape, wide, *(_made_shape(part) for part in parts)}
    shapes |= {tuple(int(e) for e in t.shape) for s in signatures.values() if s.is_tuple for t in s.results if t}
    formats = {s: tuple(_formats(s, rng)) for s in sorted(shapes)}
    return Vocabulary(shape, wide, signatures, parts, formats, missing)


# ---- ops ------------------------------------------------------------------------------------------------------------


def _pointwise_calls(shape: Shape) -> list[tuple[Build, list[Shape]]]:
    one = relax.const(np.float32(1.0))
    return [
        (R.nn.relu, [shape]),
        (R.negative, [shape]),
        (lambda x: R.add(x, one), [shape]),
        (R.add, [shape, shape]),
        (R.multiply, [shape, shape]),
        (R.maximum, [shape, shape]),
    ]


def _plain_calls(shape: Shape) -> list[tuple[Build, list[Shape]]]:
    last = len(shape) - 1
    calls: list[tuple[Build, list[Shape]]] = [
        *_pointwise_calls(shape),
        (R.subtract, [shape, shape]),
        (R.add, [shape, shape[-1:]]),
        (lambda x: R.sum(x, axis=[0], keepdims=True), [shape]),
        (lambda x: R.max(x, axis=[last]), [shape]),
        (lambda x: R.nn.softmax(x, axis=last), [shape]),
        (lambda x, y: R.concat([x, y], axis=last), [shape, shape]),
    ]
    calls += [(lambda x: R.split(x, 2, axis=last), [shape])] if shape[-1] % 2 == 0 else []
    calls += [(lambda x: R.split(x, [1], axis=last), [shape])] if shape[-1] > 1 else []
    calls += [(lambda x: R.split(x, [1, 2], axis=last), [shape])] if shape[-1] > 2 else []
    calls += [(R.matmul, [shape, shape])] if last and shape[-1] == shape[-2] else []
    if len(shape) == 4:
        weight = (4, shape[1], 3, 3)
        calls += [
            (lambda x, w: R.nn.conv2d(x, w, padding=1), [shape, weight]),
            (lambda x: R.nn.max_pool2d(x, pool_size=(2, 2), strides=(1, 1), padding=(0, 0, 1, 1)), [shape]),
            (R.multiply, [shape, (1, shape[1], 1, 1)]),
        ]
    return calls


def _calls_by_name(name: str, shape: Shape) -> list[tuple[Build, list[Shape]]]:
    """The op called ``name`` on as few tensors as it takes, with the defaults of its other arguments."""
    function: Any = R
    for part in name.removeprefix("relax.").split("."):
        function = getattr(function, part, None)
    if not name.startswith("relax.") or not callable(function):
        return []
    last = shape[-1:]
    for shapes in ([shape], [shape, shape], [shape, last], [shape] * 3, [shape, last, last]):
        variables = [relax.Var(f"p{i}", relax.TensorType(list(s), "float32")) for i, s in enumerate(shapes)]
        try:
            relax.BlockBuilder().normalize(function(*variables))
        except ILL_TYPED:  # operands that the op does not take: others are tried
            continue
        return [(function, list(shapes))]
    return []


def _signatures(calls: Sequence[tuple[Build, list[Shape]]]) -> dict[str, Signature]:
    """What the importer makes of the calls; views, pads and crops are left to :func:`_parts`."""
    builder = relax.BlockBuilder()
    params = [
        [relax.Var(f"p{i}_{j}", relax.TensorType(list(s), "float32")) for j, s in enumerate(shapes)]
        for i, (_, shapes) in enumerate(calls)
    ]
    with builder.function("main", [p for row in params for p in row]):
        with builder.dataflow():
            results = [builder.emit(build(*row)) for (build, _), row in zip(calls, params, strict=True)]
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    program = import_module(builder.finalize())
    used = {node.signature for graph in program.graphs for node in graph.nodes if node.kind == "op"}
    return {k: s for k, s in program.signatures.items() if k in used and not s.parts and s.func is not None}


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
        parts += [Border(shape, widths, fill) for fill in (-1.0, 0.0, 1.0, None)]
    return parts


def _view(shape: Shape, rng: random.Random) -> IndexMap:
    """Axes split at random, the digits shuffled, and perhaps two neighbours fused."""
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
    return IndexMap.make(shape, rows)


def _made_shape(part: Part) -> Shape:
    return tuple(int(e) for e in part.result_shape)


# ---- formats --------------------------------------------------------------------------------------------------------


def _formats(shape: Shape, rng: random.Random) -> list[Format]:
    """Row-major, orders of axes, and blocks and borders with the fills 0, 1 and undef."""
    found = [Format.row_major(shape)]
    if not shape or not math.prod(shape):
        return found
    found += [Format.make(_view(shape, rng)) for _ in range(2)]
    axis = rng.randrange(len(shape))
    pads = [(0, 0)] * len(shape)
    pads[axis] = (0, 1)
    around = [(1, 1) if a == axis else (0, 0) for a in range(len(shape))]
    for padding in (pads, around):
        padded = [e + lo + hi for e, (lo, hi) in zip(shape, padding, strict=True)]
        index_map = rng.choice((IndexMap.identity(padded), _view(tuple(padded), rng)))
        fill = rng.choice((0.0, 1.0))
        found += [Format.make(index_map, padding=padding, fill=f) for f in (fill, UNDEF)]
    return list(dict.fromkeys(found))
