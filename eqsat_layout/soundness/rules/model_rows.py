"""The rows about tensors in random models: what follows from terms and answers, by the meanings.

In: a model with its terms and graphs. Out: rows of the relations that speak of tensors, and rows of programs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from eqsat_layout.graph.borders import Border
from eqsat_layout.soundness.rules.model import Row, RuleModel

SERVING = 12
"""Wanted formats of which it is looked for what serves as them, and as what they serve."""


def add_rows(model: RuleModel) -> None:
    """Adds them all."""
    _operands(model)
    _ops(model)
    _live(model)
    if model.lexicon.is_asked:
        _storage(model)
        _wanted(model)
        _serving(model)
        _results(model)
    _rims(model)
    _constants(model)
    _uniform(model)
    _program(model)


def _operands(model: RuleModel) -> None:
    for a in dict.fromkeys([*(a for _, a in model.ops), *(a for a, _, _ in model.rows("replaces"))]):
        for i in range(len(a) + 1):
            model.add("rest", a, i, a[i:])
        for i, x in enumerate(a):
            model.add("item", a, i, x)


def _ops(model: RuleModel) -> None:
    for (k, a), y in list(model.ops.items()):
        for i, x in enumerate(a):
            model.add("use", x, i, k, y)
        for relation, kind in (("alias", "view"), ("padded", "pad"), ("cropped", "crop")):
            if model.values.is_named(k, kind):
                model.add(relation, y, k, a[0])


def _storage(model: RuleModel) -> None:
    back, view, pad_view, peek = (_grouped(model.rows(r)) for r in ("back", "view", "pad-view", "peek"))
    for (k, a), y in list(model.ops.items()):
        for _, f, v, gs in back.get(k, ()):
            model.add("run", y, f, v, a)
            model.add("want", y, f)
            model.add("want-all", a, gs)
            model.add("want-all", a[1:], " ".join(gs.split(" ")[1:]))
        for _, f, g in (*view.get(k, ()), *pad_view.get(k, ())):
            model.add("same", y, f, a[0], g)
        for _, g, f in peek.get(k, ()):
            model.add("inside", y, f, a[0], g)


def _live(model: RuleModel) -> None:
    for number in range(len(model.values.tensors)):
        if model.rng.random() < 0.8:
            model.add("live", number)


def _wanted(model: RuleModel) -> None:
    for number in range(len(model.values.tensors)):
        formats = model.formats_of(number)
        for f in model.rng.sample(formats, min(3, len(formats))):
            model.add("want", number, f)
    for number in model.values.params.values():
        formats = model.formats_of(number)
        for f in dict.fromkeys([*formats[:1], *model.rng.sample(formats, min(1, len(formats)))]):
            model.values.arrivals.add((number, f))
            model.add("given", number, f)


def _serving(model: RuleModel) -> None:
    """A buffer that serves for the same tensor in another format: padding that is known where nothing is promised. And
    buffers that are the same: of views and pads the host knows such only where everything is promised."""
    given, wanted = model.rows("given"), model.rows("want")
    for x, f in (*given, *model.rng.sample(wanted, min(SERVING, len(wanted)))):
        if isinstance(model.values.tensors[x], tuple):
            continue
        model.add("same", x, f, x, f)
        for g in model.formats_of(x):
            for strong, weak in ((f, g), (g, f)):
                if model.values.lay(strong, x).serves(model.values.lay(weak, x)):
                    model.add("inside", x, weak, x, strong)


def _results(model: RuleModel) -> None:
    for (i, y), z in model.gets.items():
        for fs in model.formats_of(y):
            model.add("part", z, model.values.formats(fs)[i], i, y, fs)
            model.add("want", y, fs)
        for _, j, f, _ in model.rows("results"):
            if i == j and model.values.fits(f, z):
                model.add("want", z, f)


def _rims(model: RuleModel) -> None:
    for k, part in model.values.parts.items():
        if not isinstance(part, Border) or part.fill is None:
            continue
        around = replace(part, fill=1.0).apply(np.zeros([int(e) for e in part.shape])) == 1.0
        for x in model.values.of_shape(tuple(int(e) for e in part.wide_shape)):
            if (model.values.array(x)[:, around] == part.fill).all() and model.evaluator.means("rim", (x, k)):
                model.add("rim", x, k)


def _constants(model: RuleModel) -> None:
    known: dict[int, str] = {}
    for name, number in model.values.constants.items():  # by the first, of which the host was asked: zeros are folded
        known.setdefault(number, name)
    model.add("constants", (), "")
    for _, a in model.ops:
        for i in range(len(a)):
            if all(x in known for x in a[i:]):
                model.add("constants", a[i:], "".join(f"{known[x]}," for x in a[i:]))


def _uniform(model: RuleModel) -> None:
    named = {x: name for name, x in model.values.constants.items()}
    for x in range(len(model.values.tensors)):
        number = model.values.uniform(x)
        if number is not None:
            model.add("filled-with", x, number)
            if x in named:  # also what was folded, which is asked for in a later round
                model.add("uniform", named[x], number)


def _program(model: RuleModel) -> None:
    """Rows of programs: terms by the numbers of tensors and operand lists."""
    values = model.values
    _number(model)
    refs: dict[int, list[int]] = {}
    for n, y in enumerate(values.refs):
        refs.setdefault(y, []).append(n)
        model.add("row-ref", n)
    ref = {y: numbers[0] for y, numbers in refs.items()}
    number = {a: n for n, a in enumerate(values.lists)}
    _lists(model, refs, number)
    for (k, a), y in model.ops.items():
        for n in refs[y]:
            model.add("row-op", n, k, number[a])
            model.add("row-led", n)
    for (i, y), z in model.gets.items():
        for n in refs[z]:
            for m in refs[y]:
                model.add("row-get", n, i, m)
    for name, y in values.constants.items():
        model.add("row-const", ref[y], name)
    for name, y in values.params.items():
        for f in model.formats_of(y):
            if values.arrives(y, f):
                model.add("row-param", ref[y], name, f)
    for y, f in model.rows("want"):
        model.add("row-goal", ref[y], f)


def _lists(model: RuleModel, refs: dict[int, list[int]], number: dict[tuple[int, ...], int]) -> None:
    for a, n in number.items():
        model.add("row-list", n)
        if a:
            for m in refs[a[0]]:
                model.add("row-arg", n, m, number[a[1:]])
        else:
            model.add("row-end", n)


def _number(model: RuleModel) -> None:
    """Numbers tensors and lists so that numbers of different things agree now and then: rules must not mix them up."""
    values, rng = model.values, model.rng
    values.lists = list(dict.fromkeys(a[i:] for _, a in model.ops for i in range(len(a) + 1)))
    rng.shuffle(values.lists)
    number = {a: n for n, a in enumerate(values.lists)}
    values.refs = []
    for i, y in rng.sample(list(model.gets), min(2, len(model.gets))):  # result i of y at i, y beside it
        pair = [model.gets[i, y], y]
        values.refs += pair if i == 0 and rng.random() < 0.5 else pair[::-1]
    values.refs += rng.sample(range(len(values.tensors)), len(values.tensors))
    for n in [n for n, a in enumerate(values.lists[:20]) if a and n > 4][:3]:
        values.refs.insert(n, values.lists[n][0])  # a list and its first operand
    for n in [n for n, a in enumerate(values.lists) if a and 4 < number[a[1:]] < 40][:3]:
        values.refs[number[values.lists[n][1:]]] = values.lists[n][0]  # a first operand and the rest
    for (_, a), y in rng.sample(list(model.ops.items()), min(3, len(model.ops))):
        if 4 < number[a] < len(values.refs):
            values.refs[number[a]] = y  # the result of an op and its operand list
    known = set(values.refs)
    values.refs += [y for y in range(len(values.tensors)) if y not in known]


def _grouped(rows: Iterable[Row]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found
