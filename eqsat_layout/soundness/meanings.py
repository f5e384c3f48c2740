"""The language of meanings (soundness room): what ``;=`` lines are made of besides the terms of the e-graph.

rules/README.md tells what each function is; the interpreter (``values.py``) evaluates them, the prover reasons about
them with its axioms.
"""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_layout.errors import RuleError
from eqsat_layout.soundness.rule_text import Expr, Meaning, RuleBase, literal_sort, parse, show, substitute, variables

FUNCTIONS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "named": (("String", "String"), "Bool"),
    "fits": (("String", "Tensor"), "Bool"),
    "fits-all": (("String", "Args"), "Bool"),
    "computes": (("String", "Args", "Tensor", "String"), "Bool"),
    "serves": (("Buffer", "Buffer"), "Bool"),
    "lay": (("String", "Tensor"), "Buffer"),
    "window": (("String", "Tensor"), "Tensor"),
    "pick": (("Args", "i64"), "Tensor"),
    "drop": (("Args", "i64"), "Args"),
    "cons": (("String", "String"), "String"),
    "nth-of": (("String", "i64"), "String"),
    "constants-named": (("String",), "Args"),
    "graph": (("String", "Args"), "Tensor"),
    "node": (("String", "i64", "Args"), "Tensor"),
    "nodes": (("String", "i64", "Args"), "Args"),
}
"""Functions with the sorts of their arguments and result."""

_AT = parse("(Op k (Arg x (End)))")[0]


def expanded(form: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """``(at k x)`` is the op k of one operand x."""
    if form[0] != "at":
        return form
    if len(form) != 3:
        raise RuleError(f"{show(form)}: 'at' takes an op and its operand")
    found = substitute(_AT, {"k": form[1], "x": form[2]})
    assert isinstance(found, tuple)
    return found


def sorts_in(formula: Expr, base: RuleBase) -> dict[str, str]:
    """Sorts of the variables of a formula, from the places that they stand in."""
    found: dict[str, str] = {}

    def visit(expr: Expr) -> None:
        if isinstance(expr, str):
            return
        head, *parts = expanded(expr)
        columns = FUNCTIONS.get(str(head), ((), ""))[0] or base.constructors.get(str(head), ((), ""))[0]
        columns = columns or base.relations.get(str(head), ())
        for part, sort in zip(parts, columns, strict=False):
            if isinstance(part, str) and literal_sort(part) is None:
                found.setdefault(part, sort)
        for part in parts:
            visit(part)

    visit(formula)
    return found


def free_variables(meaning: Meaning, base: RuleBase) -> dict[str, str]:
    """What a meaning says of everything: its variables that are no columns, with their sorts."""
    formula = meaning.formula
    bound = variables(formula[1]) if isinstance(formula, tuple) and formula[0] == "some" else {}
    sorts = sorts_in(formula, base)
    names = [name for name in variables(formula) if name not in meaning.columns and name not in bound]
    return {name: sorts.get(name, "Tensor") for name in names}
