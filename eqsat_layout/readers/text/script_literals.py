"""The small rules of the grammar of a Relax text: constants, arithmetic, depth.

In: nodes of a syntax tree. Out: nothing, or :class:`UnsafeScriptError`: what would take all memory or the whole stack
is no model, and Python evaluates arithmetic of constants before TVM sees it.
"""

from __future__ import annotations

import ast
from typing import Final

DEEPEST: Final = 300
"""Nodes within nodes: Python's compiler and TVM's evaluator call themselves for each."""

_LARGEST: Final = 1 << 64
"""Integers beyond it are no tensor's."""

_WIDEST: Final = 64
"""Bits that a constant is shifted by."""

_NUMBERS: Final = frozenset(("elem_offset", "ndim"))
"""Fields that one can calculate with."""


class UnsafeScriptError(ValueError):
    """The text is more than TVMScript; ``line`` and ``column`` say where, from 1."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(message)
        self.line, self.column = line, column


def refusal(node: ast.AST, message: str) -> UnsafeScriptError:
    """What is wrong with ``node``, with its place."""
    return UnsafeScriptError(getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1, message)


def check_depth(tree: ast.AST) -> None:
    """Raises where too much stands in something; itself it works with a list."""
    nodes: list[tuple[ast.AST, int]] = [(tree, 1)]
    while nodes:
        node, depth = nodes.pop()
        if depth > DEEPEST:
            raise refusal(node, f"more than {DEEPEST} expressions within each other")
        nodes.extend((child, depth + 1) for child in ast.iter_child_nodes(node))


def check_literals(node: ast.AST) -> None:
    """Raises for a constant, an operation or a list of parameters that TVMScript does not have."""
    match node:
        case ast.Constant(value=value):
            if not isinstance(value, str | int | float | None):
                raise refusal(node, f"a constant of type {type(value).__name__} is not TVMScript")
            if isinstance(value, int) and value > _LARGEST:
                raise refusal(node, "an integer of more than 64 bits")
        case ast.BinOp(left=left, op=op, right=right):
            _check_operation(node, op, left, right)
        case ast.AugAssign(target=left, op=op, value=right):
            _check_operation(node, op, left, right)
        case ast.keyword(arg=None):
            raise refusal(node, "spreads a dictionary over arguments")
        case ast.Dict(keys=keys) if None in keys:
            raise refusal(node, "spreads a dictionary in another")
        case ast.For(orelse=[_, *_]) | ast.While(orelse=[_, *_]):
            raise refusal(node, "a loop with an else is not TVMScript")
        case ast.arguments(posonlyargs=a, kwonlyargs=b, defaults=c, kw_defaults=d, vararg=e, kwarg=f):
            if a or b or c or d or e or f:
                raise refusal(node, "parameters other than plain ones are not TVMScript")
        case _:
            pass


def dotted(node: ast.expr) -> tuple[ast.expr, list[str]]:
    """``a.b.c`` as ``a`` and its attributes from the left."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return node, names


def _check_operation(node: ast.AST, op: ast.operator, left: ast.expr, right: ast.expr) -> None:
    """``"x" * 10**9`` is a gigabyte: text, lists and tuples are not calculated with, and shifts are small."""
    for operand in (left, right):
        if not _is_number(operand):
            raise refusal(operand, f"calculates with a {type(operand).__name__}")
    if isinstance(op, ast.LShift):
        bits = right.value if isinstance(right, ast.Constant) else None
        names_something = any(isinstance(part, ast.Name) for part in ast.walk(right))
        if not names_something and not (isinstance(bits, int) and 0 <= bits <= _WIDEST):
            raise refusal(node, f"shifts by more than {_WIDEST}")


def _is_number(node: ast.expr) -> bool:
    """It may be a number or an expression of TVM; not surely text or a list."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float)
        case ast.Attribute(attr=name):
            root, _ = dotted(node)
            return name in _NUMBERS or (isinstance(root, ast.Name) and root.id in ("I", "R", "T", "Axis"))
        case ast.Subscript(value=value):
            return isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
        case ast.IfExp(body=body, orelse=orelse):
            return _is_number(body) and _is_number(orelse)
        case ast.BoolOp(values=values):
            return all(map(_is_number, values))
        case _:
            return isinstance(node, ast.Name | ast.Call | ast.BinOp | ast.UnaryOp | ast.Compare)
