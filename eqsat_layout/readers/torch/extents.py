"""What torch says of the sizes of a node's result, where Relax does not find them.

In: the inputs of a program, in torch and in Relax; what was made of a node, and its value in torch. Out: the same of
the shape that torch says, which every run checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

from tvm import ir, relax, sym, tirx

_Symbols = Mapping[str, Any]


def symbols_of(nodes: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What sizes are called in Relax, by their names in torch. Of inputs that are called so: ``nodes``, torch's values
    of them, and ``inputs``, their variables."""
    known: dict[str, Any] = {}
    for name, var in inputs.items():
        for size, extent in zip(getattr(nodes.get(name), "shape", ()), var.ty.shape.values, strict=False):
            symbol, factor, offset = _linear(_expression(size))
            if symbol and isinstance(extent, ir.Var):
                known.setdefault(symbol, extent if factor == 1 else tirx.floordiv(extent - offset, factor))
    return known


def _linear(said: Any) -> tuple[str, int, int]:
    """The symbol of a size, and 8 and 1 for ``8 s + 1``, of which an input may be; "" for others."""
    if getattr(said, "is_Symbol", False):
        return str(said), 1, 0
    symbols = list(getattr(said, "free_symbols", ()))
    if len(symbols) == 1:
        offset, next_one, third = (said.subs(symbols[0], at) for at in (0, 1, 2))
        factor = next_one - offset
        if offset.is_Integer and factor.is_Integer and factor > 1 and third == offset + 2 * factor:
            return str(symbols[0]), int(factor), int(offset)
    return "", 1, 0


def with_extents(b: relax.BlockBuilder, made: Any, value: Any, symbols: _Symbols, *, anew: bool = False) -> Any:
    """``made``, whose shape Relax does not know, of the one that torch says ``value`` has; as it is where that holds
    sizes of other ``symbols``. ``anew``: also where Relax knows it."""
    if not isinstance(made, relax.Var) or not isinstance(made.ty, relax.TensorType) or (_is_known(made) and not anew):
        return made
    extents = extents_of(value, symbols)
    if extents is None:
        return made
    return b.match_cast(made, relax.TensorType(extents, str(made.ty.dtype)))


def in_words_of(b: relax.BlockBuilder, made: Any, value: Any, symbols: _Symbols) -> Any:
    """``made``, whose shape Relax knows, in torch's words for it, which every run checks: of several convolutions
    ``(h - 1) // 2 + 1`` and a half of h are no two sizes that Relax can tell to be equal."""
    extents = extents_of(value, symbols) if isinstance(made, relax.Var) and _is_of_open_shape(made) else None
    return made if extents is None or has_extents(made, extents) else with_extents(b, made, value, symbols, anew=True)


def _is_of_open_shape(made: relax.Var) -> bool:
    is_known = isinstance(made.ty, relax.TensorType) and _is_known(made)
    return is_known and not all(isinstance(extent, tirx.IntImm) for extent in made.ty.shape.values)


def extents_of(value: Any, symbols: _Symbols) -> list[Any] | None:
    """Those of a tensor of torch's, in Relax; ``None`` for what is none, and for sizes of other symbols."""
    shape = getattr(value, "shape", None)
    made = [relax_extent(size, symbols) for size in shape or ()]
    return None if shape is None or any(one is None for one in made) else made


def is_open(made: Any) -> bool:
    """Whether Relax does not know the shape of what was made."""
    return isinstance(made, relax.Var) and isinstance(made.ty, relax.TensorType) and not _is_known(made)


def has_extents(made: Any, extents: Sequence[Any]) -> bool:
    """Whether Relax knows its shape, and in these words."""
    if not _is_known(made) or len(made.ty.shape.values) != len(extents):
        return False
    analyzer = sym.Analyzer()
    own = [analyzer.simplify(extent) for extent in made.ty.shape.values]
    return all(ir.prim.expr_deep_equal(*pair) for pair in zip(own, extents, strict=True))


def _is_known(made: Any) -> bool:
    return isinstance(made.ty.shape, relax.ShapeExpr)


def relax_extent(size: Any, symbols: _Symbols) -> Any:
    """A number of torch's in Relax; ``None`` where it holds other symbols."""
    said = _expression(size)
    made = tirx.IntImm("int64", said) if isinstance(said, int) else _made(said, symbols)
    return None if made is None else sym.Analyzer().simplify(made)


def _expression(size: Any) -> Any:
    return size if isinstance(size, int) else size.node.expr


def _made(said: Any, symbols: _Symbols) -> Any:
    if said.is_Integer:
        return tirx.IntImm("int64", int(said))
    if said.is_Symbol:
        return symbols.get(str(said))
    name = type(said).__name__
    parts = [_made(one, symbols) for one in said.args]
    if name == "Pow" and said.args[1].is_Integer and int(said.args[1]) > 0:
        parts, name = parts[:1] * int(said.args[1]), "Mul"
    if name in ("FloorDiv", "CleanDiv") and said.args[1].is_Integer and int(said.args[1]) < 0:
        parts = [part if part is None else -part for part in parts]  # the same quotient as it is proven to be
    op = _ARITHMETIC.get(name)
    return None if op is None or any(one is None for one in parts) else reduce(op, parts)


_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "Add": lambda one, other: one + other,
    "Mul": lambda one, other: one * other,
    "FloorDiv": tirx.floordiv,
    "CleanDiv": tirx.floordiv,
    "Mod": tirx.floormod,
    "PythonMod": tirx.floormod,
    "Max": tirx.Max,
    "Min": tirx.Min,
}
"""By the names of sympy's functions and torch's."""
