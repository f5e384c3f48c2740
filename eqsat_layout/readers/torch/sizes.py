"""The text of symbolic sizes in exported programs, which is evaluated by the library that reads it.

In: a text such as ``2*s0 + 1`` or ``Mul(Integer(2), Symbol('s0', positive=True))``. Out: nothing, or
:class:`UnsafeSizeError` unless it is arithmetic of names and integers.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from eqsat_layout.readers.text.script_literals import UnsafeScriptError, check_depth

_LONGEST: Final = 10_000
_LARGEST: Final = 1 << 64
_HIGHEST: Final = 8
"""The power that a size may be raised to."""

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
    """Of ``Symbol('s0', ...)``: sympy's way to write a name with what is assumed of it."""
    match node:
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name)) as constant]):
            return constant if name.isidentifier() and not name.startswith("_") else None
    return None
