"""Extents between TVM expressions and the text that the map algebra uses.

In: an extent of a shape or of an iteration variable, possibly symbolic. Out: a number or normalised text such as
``"n*4"``, the same text that :func:`eqsat_layout.maps.extent_product` writes, and the way back.
"""

from __future__ import annotations

import ast
import math
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import Extent, extent_product
from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.symbol_names import symbol_name

Monomial = tuple[str, ...]
"""Factors, sorted; the empty one is the number 1."""

Polynomial = dict[Monomial, int]


def extent_of(expr: Any) -> Extent:
    """The extent that ``expr`` (a TVM integer expression, an int, or an extent already) stands for.

    Polynomials have one text each: common factors are pulled out, terms and factors are sorted. Any text is what its
    own expression gives again. Raises :class:`LayoutError` for an expression that is no arithmetic of sizes.
    """
    if isinstance(expr, int | str):
        return expr
    kind = type(expr)
    if kind is tirx.IntImm:
        return int(expr.value)
    if kind is tvm.ir.Var:
        return symbol_name(expr)
    extent = _normalised(expr)
    symbols = {symbol_name(variable): variable for variable in tirx.analysis.undefined_vars(expr)}
    seen: list[Extent] = []
    while extent not in seen:
        seen.append(extent)
        extent = _normalised(expr_of(extent, symbols, str(expr.ty.dtype)))
    return min(seen[seen.index(extent) :], key=str)  # mostly one; TVM can turn some texts in a circle


def _normalised(expr: Any) -> Extent:
    extent = _factored(_polynomial(expr))
    if isinstance(extent, str) and any(word in extent for word in ("min(", "max(", " if ")):
        return extent  # what TVM makes of nested minima and maxima depends on their order
    return _factored(_polynomial(tvm.sym.Analyzer().simplify(expr)))


def expr_of(extent: Extent, symbols: Mapping[str, Any], dtype: str = "int64") -> Any:
    """The TVM expression of ``extent``; ``symbols`` gives the variable of every name.

    Raises :class:`LayoutError` if a name is missing or the text is none that :func:`extent_of` writes.
    """
    if isinstance(extent, int):
        return tirx.IntImm(dtype, extent)
    if extent in symbols:
        return symbols[extent]
    try:
        return _build(ast.parse(extent, mode="eval").body, symbols, dtype)
    except SyntaxError as error:
        raise LayoutError(f"{extent!r} is not the text of an extent") from error


def symbols_in(extent: str) -> list[str]:
    """The names of the variables in the text of an extent."""
    names = [node.id for node in ast.walk(ast.parse(extent, mode="eval")) if isinstance(node, ast.Name)]
    return [name for name in dict.fromkeys(names) if name not in ("min", "max")]


def extent_over(extent: Extent, number: int) -> Extent | None:
    """``extent / number`` where that is exact: of ``"n*64"`` only the number is known to divide."""
    if isinstance(extent, int):
        return None if extent % number else extent // number
    if number == 1:
        return extent
    symbols, star, factor = extent.rpartition("*")
    if not star or not factor.isdigit() or int(factor) % number:
        return None
    rest = int(factor) // number
    return f"{symbols}*{rest}" if rest > 1 else _unwrapped(symbols)


def _unwrapped(text: str) -> str:
    """``text`` without brackets around the whole of it."""
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1] if text.startswith("(") else text


_DIVISIONS = {
    tirx.FloorDiv: "//",
    tirx.Div: "//",
    tirx.FloorMod: "%",
    tirx.Mod: "%",
}  # sizes are not negative, so truncation is the floor


def _polynomial(expr: Any) -> Polynomial:
    kind = type(expr)
    if kind is tirx.IntImm:
        return {(): int(expr.value)} if expr.value else {}
    if kind is tvm.ir.Var:
        return {(symbol_name(expr),): 1}
    if kind is tirx.Cast:
        return _polynomial(expr.value)
    if kind is tirx.Add:
        return _added(_polynomial(expr.a), _polynomial(expr.b), 1)
    if kind is tirx.Sub:
        return _added(_polynomial(expr.a), _polynomial(expr.b), -1)
    if kind is tirx.Mul:
        return _multiplied(_polynomial(expr.a), _polynomial(expr.b))
    if kind in _DIVISIONS:
        return _divided(_polynomial(expr.a), _polynomial(expr.b), _DIVISIONS[kind])
    if kind in (tirx.Min, tirx.Max):
        return _extreme(expr, kind)
    if kind is tirx.Select or is_choice(expr):
        return _conditional(
            *((expr.condition, expr.true_value, expr.false_value) if kind is tirx.Select else expr.args)
        )
    raise LayoutError(f"{expr} is not an extent: {kind.__name__} is no arithmetic of sizes")


_COMPARISONS: Final = {tirx.LT: "<", tirx.LE: "<=", tirx.GT: ">", tirx.GE: ">=", tirx.EQ: "==", tirx.NE: "!="}
_COMPARED: Final = {
    ast.Lt: tirx.LT,
    ast.LtE: tirx.LE,
    ast.Gt: tirx.GT,
    ast.GtE: tirx.GE,
    ast.Eq: tirx.EQ,
    ast.NotEq: tirx.NE,
}


def _conditional(condition: Any, true: Any, false: Any) -> Polynomial:
    """What a slice from ``n - 3`` on is long: indices below 0 count from the end."""
    sign = _COMPARISONS.get(type(condition))
    if sign is None:
        raise LayoutError(f"{condition} is no comparison of sizes")
    a, b, then, other = (str(_factored(_polynomial(e))) for e in (condition.a, condition.b, true, false))
    return _polynomial(true) if then == other else {(f"({then} if {a} {sign} {b} else {other})",): 1}


def _extreme(expr: Any, kind: Any) -> Polynomial:
    name = "min" if kind is tirx.Min else "max"
    first, *rest = sorted({str(_factored(p)): p for p in _sides(expr, kind)}.items())
    if not rest:
        return first[1]
    text = first[0]
    for other, _ in rest:
        text = f"{name}({text}, {other})"
    return {(text,): 1}


def _sides(expr: Any, kind: Any) -> list[Polynomial]:
    """What ``expr`` is the minimum or maximum of, nested ones opened: their order and repetitions say nothing."""
    if type(expr) is kind:
        return _sides(expr.a, kind) + _sides(expr.b, kind)
    return [_polynomial(expr)]


def _added(a: Polynomial, b: Polynomial, sign: int) -> Polynomial:
    total = dict(a)
    for monomial, factor in b.items():
        total[monomial] = total.get(monomial, 0) + sign * factor
    return {monomial: factor for monomial, factor in total.items() if factor}


def _multiplied(a: Polynomial, b: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for left, factor in a.items():
        total = _added(total, {tuple(sorted(left + right)): factor * other for right, other in b.items()}, 1)
    return total


def _divided(dividend: Polynomial, divisor: Polynomial, sign: str) -> Polynomial:
    """The quotient (``//``) or remainder (``%``). What a number divides is taken out of the division first."""
    number = divisor.get((), 0) if len(divisor) == 1 else 0
    whole: Polynomial = {}
    if number > 0:
        parts = {m: divmod(f, number) if m == () or f % number == 0 else (0, f) for m, f in dividend.items()}
        whole = {monomial: quotient for monomial, (quotient, _) in parts.items() if quotient}
        dividend = {monomial: left for monomial, (_, left) in parts.items() if left}
    if number > 0 and not dividend.keys() - {()}:
        left = dividend.get((), 0)
        rest: Polynomial = {(): left // number if sign == "//" else left % number}
        rest = {monomial: factor for monomial, factor in rest.items() if factor}
    else:
        texts = [str(_factored(side)) for side in (dividend, divisor)]
        above, below = (t if t.isalnum() else f"({t})" for t in texts)
        rest = {(f"{above} {sign} {below}",): 1}
    return _added(whole, rest, 1) if sign == "//" else rest


def _factored(polynomial: Polynomial) -> Extent:
    if not polynomial:
        return 0
    content = math.gcd(*polynomial.values())
    common = Counter(next(iter(polynomial)))
    for monomial in polynomial:
        common &= Counter(monomial)
    rest = {
        tuple(sorted((Counter(monomial) - common).elements())): factor // content
        for monomial, factor in polynomial.items()
    }
    factors: list[Extent] = [content, *common.elements()]
    if rest != {(): 1}:
        factors.append(_sum_text(rest))
    return extent_product(factors)


def _sum_text(polynomial: Polynomial) -> str:
    terms = sorted(polynomial.items(), key=lambda item: (-len(item[0]), item[0]))
    return " + ".join(str(extent_product([*monomial, factor])) for monomial, factor in terms)


_ARITHMETIC: Final[dict[type[ast.operator], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: tirx.floordiv,
    ast.Mod: tirx.floormod,
}


def _build(node: ast.expr, symbols: Mapping[str, Any], dtype: str) -> Any:
    match node:
        case ast.Name(id=name) if name in symbols:
            return symbols[name]
        case ast.Name(id=name):
            raise LayoutError(f"no variable is known for the symbolic extent {name!r}")
        case ast.Constant(value=int(value)):
            return tirx.IntImm(dtype, value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_build(operand, symbols, dtype)
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[a, b]):
            node_kind = tirx.Min if name == "min" else tirx.Max  # tirx.max folds, and the text would change
            return node_kind(_build(a, symbols, dtype), _build(b, symbols, dtype))
        case ast.IfExp(test=ast.Compare(left=left, ops=[sign], comparators=[right]), body=body, orelse=other):
            a, b, then, otherwise = (_build(part, symbols, dtype) for part in (left, right, body, other))
            return tirx.if_then_else(_COMPARED[type(sign)](a, b), then, otherwise)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _build(left, symbols, dtype), _build(right, symbols, dtype)
            if type(op) in _ARITHMETIC:
                return _ARITHMETIC[type(op)](a, b)
    raise LayoutError(f"{ast.unparse(node)!r} is not the text of an extent")


def unravelled(number: Any, extents: Sequence[int]) -> list[Any]:
    """The indices, in a tensor of these extents, of the element that has this number in the order of memory."""
    at: list[Any] = []
    for extent in reversed(extents[1:]):
        at.insert(0, number % extent)
        number = number // extent
    return [number, *at]
