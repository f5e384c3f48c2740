"""The language of meanings: what ``;=`` lines are made of besides the terms of the e-graph.

rules/README.md tells what each function is; the interpreter (``terms.py``) evaluates them, the prover reasons about
them with its axioms.
"""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_layout.egraph.expressions import Expr, literal_sort, parse, show, substituted, variables
from eqsat_layout.errors import RuleError
from eqsat_layout.soundness.rules.rule_base import Meaning, RuleBase

FUNCTIONS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "named": (("String", "String"), "Bool"),
    "fits": (("String", "Tensor"), "Bool"),
    "fits-all": (("String", "Args"), "Bool"),
    "computes": (("String", "Args", "Tensor", "String"), "Bool"),
    "reads": (("String", "String"), "Bool"),
    "arrives": (("Tensor", "String"), "Bool"),
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
    "of-type": (("Tensor", "String"), "Bool"),
    "of-types": (("Args", "String"), "Bool"),
    "attribute": (("String", "String", "String"), "Bool"),
    "attribute-number": (("String", "String", "i64"), "Bool"),
    "by-default": (("String", "String"), "Bool"),
    "everywhere": (("Tensor", "String"), "Bool"),
    "same-type": (("Tensor", "Tensor"), "Bool"),
}
"""Functions with the sorts of their arguments and result."""

_KINDS: Mapping[str, tuple[str, ...]] = {
    "Op": ("op",),
    "Const": ("constant",),
    "Param": ("parameter",),
    "named": ("op", "text"),
    "fits": ("format",),
    "fits-all": ("format",),
    "computes": ("variant", "", "", "format"),
    "reads": ("variant", "format"),
    "arrives": ("", "format"),
    "lay": ("format",),
    "window": ("op",),
    "cons": ("format", "format"),
    "nth-of": ("format",),
    "constants-named": ("list of constants",),
    "graph": ("graph",),
    "node": ("graph",),
    "nodes": ("graph",),
    "of-type": ("", "type"),
    "of-types": ("", "list of types"),
    "attribute": ("op", "text", "text"),
    "attribute-number": ("op", "text"),
    "by-default": ("op", "text"),
    "everywhere": ("", "text"),
}
"""Names of what the strings in these places are. No name is one of two kinds; a list of formats counts as a format."""

_MADE = {"cons": "format", "nth-of": "format"}

_AT = parse("(Op k (Arg x (End)))")[0]


def expanded(form: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """``(at k x)`` is the op k of one operand x."""
    if form[0] != "at":
        return form
    if len(form) != 3:
        raise RuleError(f"{show(form)}: 'at' takes an op and its operand")
    found = substituted(_AT, {"k": form[1], "x": form[2]})
    assert isinstance(found, tuple)
    return found


def sorts_in(
    formula: Expr, base: RuleBase, more: Mapping[str, tuple[tuple[str, ...], str]] | None = None
) -> dict[str, str]:
    """Sorts of the variables of a formula, from the places that they stand in; ``more`` functions may be in it."""
    functions = {**FUNCTIONS, **(more or {})}
    found: dict[str, str] = {}

    def visit(expr: Expr) -> None:
        if isinstance(expr, str):
            return
        head, *parts = expanded(expr)
        columns = functions.get(str(head), ((), ""))[0] or base.constructors.get(str(head), ((), ""))[0]
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
    sorts = sorts_in(meaning.formula, base)
    names = [name for name in unbound(meaning.formula) if name not in meaning.columns]
    return {name: sorts.get(name, "Tensor") for name in names}


def unbound(formula: Expr) -> dict[str, None]:
    """The variables of a formula but for those that a ``some`` in it names."""
    if isinstance(formula, str) or not formula or not any(isinstance(part, tuple) for part in formula):
        return variables(formula)
    if formula[0] == "some":
        bound = variables(formula[1])
        return {name: None for name in unbound(formula[2]) if name not in bound}
    return {name: None for part in formula[1:] for name in unbound(part)}


_NAMED = ("parameter", "type", "list of types")
"""What a text may be as well: programs call their parameters as they like, and a type is called ``"int8[4]"``."""


def never_holds(body: tuple[Expr, ...], base: RuleBase) -> str:
    """Why a body can't match anything, as far as its names say: a name of two kinds. Empty if they don't say so."""
    for name, kinds in _kinds_in(body, base).items():
        if len(kinds) > 1:
            return f"{name} would be a {' and a '.join(sorted(kinds))}"
    return ""


def _kinds_in(body: tuple[Expr, ...], base: RuleBase) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}

    def note(name: Expr, kind: str) -> None:
        if literal_sort(str(name)) is not None and kind in _NAMED:
            return
        if isinstance(name, str) and kind and (literal_sort(name) is None or name not in ('""', '","')):
            found.setdefault(name, {"text"} if literal_sort(name) else set()).add(kind)

    def visit(expr: Expr) -> None:
        if isinstance(expr, str):
            return
        head, *parts = expanded(expr)
        meaning = base.meanings.get(str(head))
        if meaning is not None:
            visit(substituted(meaning.formula, dict(zip(meaning.columns, parts, strict=False))))
            return
        for part, kind in zip(parts, _KINDS.get(str(head), ()), strict=False):
            note(part, kind)
        if head == "=":
            for part, other in (parts, parts[::-1]):
                note(part, _MADE.get(str(other[0]), "") if isinstance(other, tuple) else "")
        for part in parts:
            visit(part)

    for fact in body:
        visit(fact)
    return found
