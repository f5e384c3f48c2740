"""Graphs that may replace an op, in random models.

In: a model. Out: random graphs over two operands and those of the lexicon, with the rows that describe them.
"""

from __future__ import annotations

from typing import Any

from eqsat_layout.soundness.rules.ill_typed import IllTypedError
from eqsat_layout.soundness.rules.model import RuleModel


def add_graphs(model: RuleModel) -> None:
    """Graphs as those that replace an op: random ones, and those of the lexicon."""
    rng, values = model.rng, model.values
    base = values.of_type(model.vocabulary.shape, "float32")
    for n in range(2):
        name = f"graph{n}"
        rows = values.graphs[name] = _random_graph(model)
        for (kind, number), (what, *rest) in rows.items():
            if kind == "result":
                model.add("alt-result", name, what)
            else:
                model.add(f"alt-{what}", name, number, *rest)
        x, y, z = (rng.choice(base) for _ in range(3))
        for given in ((x, y), (y, x), (y, z)):
            try:
                _add_replaced(model, name, given, values.graph(name, given))
            except IllTypedError:  # an op of it has no value here, as an order has none for NaN
                continue
    for key, name in [row for row in model.rows("alternative") if row[1] not in values.graphs]:
        values.graphs[name] = model.lexicon.graphs[name]
        for (k, a), y in list(model.ops.items()):
            if k == key and _gives(model, name, a, y):
                _add_replaced(model, name, a, y)


def _gives(model: RuleModel, name: str, operands: tuple[int, ...], number: int) -> bool:
    """Whether the graph gives this tensor; if the host was wrong, it does not, and that is said of its answer."""
    try:
        return model.values.equal(model.values.graph(name, operands), number)
    except IllTypedError:
        return False


def _random_graph(model: RuleModel) -> dict[tuple[str, int], tuple[Any, ...]]:
    """A graph over two operands of the base shape. Terms and lists have random numbers."""
    rng = model.rng
    one, two, pair = (_ops_of(model, count, results) for count, results in ((1, 1), (2, 1), (1, 2)))
    terms, lists = rng.sample(range(12), 12), rng.sample(range(20), 20)
    if rng.random() < 0.5:  # the numbers of parameters are those of other operands
        terms = [n for n in terms if n > 1] + [0, 1]
    rows: dict[tuple[str, int], tuple[Any, ...]] = {}

    def term(*row: Any) -> int:
        rows["node", terms[-1]] = row
        return terms.pop()

    def operands(*numbers: int) -> int:
        if not numbers:
            return end
        rest = operands(*numbers[1:])
        for (kind, known), row in rows.items():
            if kind == "nodes" and row == ("arg", numbers[0], rest):
                return known
        rows["nodes", lists[-1]] = ("arg", numbers[0], rest)
        return lists.pop()

    end = lists.pop()
    rows["nodes", end] = ("end",)
    params = [term("param", 0), term("param", 1)]
    leaves = [*params, term("const", rng.choice(model.lexicon.base_constants))]
    made = [term("op", rng.choice(two), operands(*rng.sample(leaves, 2)))]
    made.append(term("op", rng.choice(one), operands(rng.choice(leaves + made))))
    made.append(term("op", rng.choice(two), operands(*params)))
    operands(made[0], *params)
    operands(made[0], *params[::-1])
    if pair:
        terms.sort(reverse=True)  # the number of a tuple is that of one of its fields, if it is not taken
        both = term("op", rng.choice(pair), operands(rng.choice(made)))
        made = [term("get", i, both) for i in (0, 1)]
    rows["result", 0] = (rng.choice(made),)
    return rows


def _add_replaced(model: RuleModel, name: str, operands: tuple[int, ...], number: int) -> None:
    """Rows of a graph over operands that gives a tensor; none of them if one of its terms has no value, used or not."""
    relations = {"node": "term", "nodes": "terms"}
    made = [
        (relations[kind], at, model.values.node(name, kind, at, operands))
        for kind, at in model.values.graphs[name]
        if kind in relations
    ]
    model.add("replaces", operands, name, number)
    for relation, at, value in made:
        model.add(relation, operands, name, at, value)


def _ops_of(model: RuleModel, operands: int, results: int) -> list[str]:
    """Ops that take tensors of the base shape only; of one result, one of that shape too."""
    shape = model.vocabulary.shape
    found = []
    for key, s in model.vocabulary.signatures.items():
        takes = [(t.shape, t.dtype) for t in s.operands if t is not None]
        makes = [(t.shape, t.dtype) for t in s.results if t is not None]
        taken = (shape, "float32")
        if takes == [taken] * operands and len(makes) == results and (results > 1 or makes == [taken]):
            found.append(key)
    return found
