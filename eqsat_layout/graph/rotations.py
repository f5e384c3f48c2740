"""Layout transforms that TVM lowers wrongly: rotations.

In: an op. Out: whether its TIR computes what the op says. TVM inverts rotations such as ``(i + 3) % 8`` wrongly, and
its TIR for them loses elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from eqsat_layout.graph.graph import Signature
from eqsat_layout.maps import Extent
from eqsat_layout.tir.index_map import from_tvm
from eqsat_layout.tir.structural import nodes_of


def is_legalised_rightly(op: Signature) -> bool:
    """True but for a ``layout_transform`` whose map is no permutation of digits, on its shape or on a padded one."""
    if op.name != "relax.layout_transform" or op.operands[0] is None:
        return True
    index_map = op.template.attrs.index_map
    shapes = _shapes(index_map, op.operands[0].shape)
    return any(from_tvm(index_map, shape) is not None for shape in shapes)


def _shapes(index_map: Any, shape: Sequence[Extent]) -> Iterator[Sequence[Extent]]:
    """The shape, and shapes that the map may pad it to: up to what divides by the numbers that the map divides by."""
    yield shape
    divisors = [_divisors(index_map, variable) for variable in index_map.initial_indices]
    for size in (1, 2, None):
        factors = [math.prod(own[:size]) for own in divisors]
        yield [e + -e % f if isinstance(e, int) else e for e, f in zip(shape, factors, strict=True)]


def _divisors(index_map: Any, variable: Any) -> list[int]:
    """What the map divides expressions in ``variable`` by, largest first."""
    found: set[int] = set()

    def visit(node: Any) -> None:
        if isinstance(node.b, tirx.IntImm) and _mentions(node.a, variable):
            found.add(int(node.b))

    for expr in index_map.final_indices:
        tvm_ffi.structural_walk(expr, ((tirx.FloorDiv, tirx.FloorMod), visit))
    return sorted(found, reverse=True)


def _mentions(expr: Any, variable: Any) -> bool:
    return any(v.same_as(variable) for v in nodes_of(expr, ir.Var))
