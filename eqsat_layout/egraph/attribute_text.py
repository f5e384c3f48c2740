"""Attributes as rule text writes them: ``axis=1, strides=[1, 2] * [2, 2]``.

In: text of keywords, made of numbers, strings, lists and arithmetic. Out: plain values; :class:`Refused` for anything
else. Lists are computed with element by element, and ``a[[2, 0]]`` takes elements of ``a``, as in NumPy. It is read
and computed here: nothing is handed to Python.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from eqsat_layout.errors import Refused
from eqsat_layout.graph.op_calls import Attribute

_LONGEST, _LARGEST, _MOST = 2_000, 1 << 62, 64
"""Characters of a text, the size of a number, the length of a list."""

_NAMED: Final = {"inf": math.inf, "nan": math.nan}
"""Numbers that are written as names: ``-inf`` is how the least bound of a clip is shown."""
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {"len": len, "min": min, "max": max, "sum": sum}


def shown(value: Attribute) -> str:
    """The text of a value, the same for equal ones."""
    return repr(value)


def read_value(text: str) -> Attribute:
    """One value; :class:`Refused` for what is none."""
    return read_attributes(f"value={text}")["value"]


def read_attributes(text: str) -> dict[str, Attribute]:
    """The values by keyword."""
    if len(text) > _LONGEST:
        raise Refused("attributes of more than 2000 characters")
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refused(f"attributes are written 'axis=1, keepdims=True', not {text!r}") from error
    if not isinstance(call, ast.Call) or call.args or ast.unparse(call.func) != "f":
        raise Refused(f"attributes are written 'axis=1, keepdims=True', not {text!r}")
    found: dict[str, Attribute] = {}
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in found:
            raise Refused(f"attributes are written 'axis=1, keepdims=True', not {text!r}")
        found[keyword.arg] = _value(keyword.value)
    return found


def _value(node: ast.expr) -> Any:
    try:
        return _checked(_computed(node))
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise Refused(f"{ast.unparse(node)} has no value: {error}") from error


def _computed(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str | None):
        return node.value
    if isinstance(node, ast.Name) and node.id in _NAMED:
        return _NAMED[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(element) for element in node.elts]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _elementwise(operator.mul, -1, _value(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _elementwise(_OPERATORS[type(node.op)], _value(node.left), _value(node.right))
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.expr):
        of, at = _value(node.value), _value(node.slice)
        return [of[i] for i in at] if isinstance(at, list) else of[at]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        function = _FUNCTIONS.get(node.func.id)
        if function is not None:
            return function(*map(_value, node.args))
    raise Refused(f"attributes are numbers, strings, lists and arithmetic, not {ast.unparse(node)}")


def _elementwise(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if isinstance(a, list) or isinstance(b, list):
        length = len(a if isinstance(a, list) else b)
        a, b = (x if isinstance(x, list) else [x] * length for x in (a, b))
        return [_elementwise(function, x, y) for x, y in zip(a, b, strict=True)]
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        raise TypeError("only numbers are computed with")
    return _checked(function(a, b))


def _checked(value: Any) -> Any:
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise ValueError("the number is too large")
    if isinstance(value, list) and len(value) > _MOST:
        raise ValueError("the list is too long")
    return value
