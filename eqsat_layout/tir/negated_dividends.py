"""Quotients and remainders of what counts down: ``(31 - v) // 16``, as in a flip of a reshape.

In: an expression or statement. Out: the same with dividends that count up. TVM's maps of iterators, by which it
simplifies the offset of an element, take ``-v // 16`` for ``v // -16`` and ``-v % 16`` for ``-(v % -16)``: the places
that they give are others, out of the buffer too.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from tvm import tirx

from eqsat_layout.tir.structural import primfunc_pass, structural_map


def counting_up(node: Any) -> Any:
    """``node`` with an equal quotient or remainder in the place of each whose dividend only falls."""
    return structural_map(node, ((tirx.FloorDiv, tirx.FloorMod), _counting_up))


def dividends_that_count_up() -> Any:
    """:func:`counting_up` as a pass; it comes before those that make offsets of indices."""
    return primfunc_pass("DividendsThatCountUp", lambda func: func.with_body(counting_up(func.body)))


def _counting_up(node: Any) -> Any:
    """With ``r = divisor - 1 - c % divisor`` and any whole ``e``: ``(c - e) // divisor`` is ``c // divisor - (e + r) //
    divisor``, and ``(c - e) % divisor`` is ``divisor - 1 - (e + r) % divisor``."""
    divisor = node.b
    if not isinstance(divisor, tirx.IntImm) or int(divisor) < 1:
        return node
    constant, falling = 0, list[Any]()
    waiting = [(node.a, 1)]
    while waiting:
        part, factor = waiting.pop()
        if isinstance(part, tirx.IntImm):
            constant += factor * int(part)
        elif isinstance(part, tirx.Add | tirx.Sub):
            waiting += [(part.b, factor if isinstance(part, tirx.Add) else -factor), (part.a, factor)]
        elif isinstance(part, tirx.Mul) and isinstance(part.b, tirx.IntImm):
            waiting.append((part.a, factor * int(part.b)))
        elif factor < 0:
            falling.append(part if factor == -1 else part * -factor)
        elif factor > 0:
            return node
    if not falling:
        return node
    size, dtype = int(divisor), divisor.ty.dtype
    rest = size - 1 - constant % size
    rising = reduce(lambda a, b: a + b, falling)
    rising = rising + tirx.IntImm(dtype, rest) if rest else rising
    if isinstance(node, tirx.FloorDiv):
        return tirx.IntImm(dtype, constant // size) - tirx.FloorDiv(rising, divisor)
    return tirx.IntImm(dtype, size - 1) - tirx.FloorMod(rising, divisor)
