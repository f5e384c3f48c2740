"""The text of symbolic sizes in exported programs, which is evaluated by the library that reads it.

In: a text such as ``2*s0 + 1`` or ``Mul(Integer(2), Symbol('s0', positive=True))``. Out: nothing, or
:class:`UnsafeSizeError` unless it is arithmetic of names and integers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final

from eqsat_layout.readers.text.script_literals import UnsafeScriptError, check_depth

_LONGEST: Final = 10_000
_LARGEST: Final = 1 << 64
_HIGHEST: Final = 8
"""The power that a size may be raised to."""

_ON_SIZES: Final = ("_operator.", "math.", "torch.sym_", "torch._sym_")
_TO_A_POWER: Final = ("_operator.pow", "math.pow")
_DIGITS: Final = 64
_MOST_DIGITS: Final = 4096

_POWERS: Final = ("Pow", "PowByNatural", "FloatPow")
_FUNCTIONS: Final = frozenset((
    "Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Mod", "Max", "Min", "Abs", "Eq", "Ne", "Lt", "Le", "Gt",
    "Ge", "And", "Or", "Not", "StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan", "Equality",
    "Unequality", "FloorDiv", "ModularIndexing", "Where", "PythonMod", "CleanDiv", "CeilToInt", "FloorToInt",
    "CeilDiv", "IntTrueDiv", "FloatTrueDiv", "LShift", "RShift", "IsNonOverlappingAndDenseIndicator", "TruncToFloat",
    "TruncToInt", "RoundToInt", "RoundDecimal", "ToFloat", "Identity", *_POWERS,
))  # fmt: skip
"""What sizes are made with: sympy's own names, and those of torch's. Any other of sympy's may work for ever."""

_NODES: Final = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Call, ast.Name, ast.Constant, ast.expr_context,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.USub, ast.UAdd, ast.Not, ast.And, ast.Or,
    ast.BitAnd, ast.BitOr, ast.Invert, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip


class UnsafeSizeError(ValueError):
    """A text that is more than a size."""


def check_size_text(text: Any, where: str) -> None:
    """Raises unless ``text`` is a size; ``where`` is for the message."""
    complaint = UnsafeSizeError(f"{where}: {str(text)[:60]!r} is no size")
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise complaint
    try:
        tree = ast.parse(text.strip(), mode="eval")
        check_depth(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError, UnsafeScriptError) as error:
        raise complaint from error
    symbols = {id(found) for node in ast.walk(tree) if (found := _name_of_symbol(node)) is not None}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str()):
                fits = id(node) in symbols
            case ast.Constant(value=value):
                fits = isinstance(value, int | float) and abs(value) <= _LARGEST
            case ast.Name(id=name):
                fits = not name.startswith("_")
            case ast.Call(func=ast.Name(id=name), keywords=keywords):
                fits = name in _FUNCTIONS and (not keywords or name == "Symbol")
                fits = fits and (name not in _POWERS or _is_low(node))
            case ast.keyword(arg=str(assumption), value=ast.Constant(value=bool())):
                fits = assumption.isalpha()
            case ast.BinOp(op=ast.Pow(), right=power):
                fits = isinstance(power, ast.Constant) and isinstance(power.value, int) and power.value <= _HIGHEST
            case _:
                fits = isinstance(node, _NODES) and not isinstance(node, ast.Call)
        if not fits:
            raise complaint


def check_size_nodes(nodes: Any, where: str) -> None:
    """Raises where ``nodes`` of a program, which torch runs with the numbers that are known, give a number without
    end: powers, and products of products."""
    digits: dict[str, int] = {}
    for node in _dicts(nodes):
        target = node.get("target")
        if not isinstance(target, str) or not target.startswith(_ON_SIZES):
            continue
        operands = [value for one in _dicts(node.get("inputs")) for value in _operands(one.get("arg"))]
        found = [digits.get(value, _DIGITS) if isinstance(value, str) else _DIGITS for value in operands] or [_DIGITS]
        made = sum(found) if target == "_operator.mul" else max(found) + 1
        if target in _TO_A_POWER:
            made = found[0] * _power(operands, f"{where}: {target}")
        if made > _MOST_DIGITS:
            raise UnsafeSizeError(f"{where}: {target} gives a number of {made} binary digits, which is no size")
        for one in _dicts(node.get("outputs")):
            digits.update((name, made) for name in _operands(one) if isinstance(name, str))


def _power(operands: list[str | int | float], what: str) -> int:
    """The power that a number is raised to; 1 for one of floats, which have an end."""
    power = operands[-1] if operands else None
    if isinstance(power, float):
        return 1
    if not isinstance(power, int) or power > _HIGHEST:
        raise UnsafeSizeError(f"{what} to a power that is no small number")
    return max(1, power)


def _operands(argument: Any) -> Iterator[str | int | float]:
    """The numbers of an argument, and the names of those that are not known; a text is no operand of sizes."""
    for kind, value in argument.items() if isinstance(argument, dict) else ():
        if kind == "as_string" or (isinstance(value, int) and abs(value) > _LARGEST):
            raise UnsafeSizeError(f"{str(value)[:60]!r} is no size")
        if kind.startswith("as_sym_"):
            yield from _operands(value)
        elif isinstance(value, int | float if kind in ("as_int", "as_float") else str) and kind.startswith("as_"):
            yield value


def _dicts(rows: Any) -> list[dict[str, Any]]:
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _is_low(node: ast.Call) -> bool:
    """Whether a call raises to a small power, which may be written ``Integer(2)``."""
    match node.args:
        case [_, ast.Constant(value=int(power))] | [
            _,
            ast.Call(func=ast.Name(id="Integer"), args=[ast.Constant(value=int(power))]),
        ]:
            return power <= _HIGHEST
    return False


def _name_of_symbol(node: ast.AST) -> ast.Constant | None:
    """The name in ``Symbol('s0', ...)``, as sympy writes a symbol with assumptions."""
    match node:
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name)) as constant]):
            return constant if name.isidentifier() and not name.startswith("_") else None
    return None
