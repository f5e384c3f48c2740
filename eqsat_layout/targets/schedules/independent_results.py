"""A function of many results that have nothing to do with one another, result by result: an unbind, a split.

In: a PrimFunc. Out: one for each result, and the way back from their schedules. One schedule of all would be copied for
each of them: 100 parts took 25 s to compile.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import ir, s_tir

from eqsat_layout.errors import Refused
from eqsat_layout.passes.matrix_literals import with_literals_of
from eqsat_layout.tir.blocks import accesses_of, block_of, function_of_parts, function_over, statements_of, store_of
from eqsat_layout.tir.structural import nodes_of

_MANY: Final = 6
"""Results from which on they are taken one by one."""


@dataclass(frozen=True)
class IndependentResults:
    """``func``, and a function for each result of it over the parameters that this one needs."""

    func: Any
    parts: Sequence[Any]

    def joined(self, done: Sequence[Any]) -> Any:
        """One function of the parts as they are scheduled."""
        return function_of_parts(self.func, list(zip(self.parts, done, strict=True)))


def independent_results(func: Any) -> IndependentResults:
    """Refused where there are few, or one needs what another one does."""
    if not isinstance(func.body, s_tir.SBlockRealize):
        raise Refused("a body that is no block")
    statements = statements_of(func)
    if len(statements) < _MANY or func.body.block.alloc_buffers:
        raise Refused("few statements, or tensors that these share")
    blocks = [block_of(statement) for statement in statements]
    written = [store_of(block).buffer for block in blocks]
    used = [{buffer for buffer, _ in accesses_of(block)} for block in blocks]
    if len(set(written)) < len(written) or any(own not in func.params for one in used for own in one):
        raise Refused("one result in several statements")
    if any(own & set(written) != {result} for own, result in zip(used, written, strict=True)):
        raise Refused("a statement needs what another one does")
    loaded = [{load.source for load in nodes_of(statement, ir.TensorLoad)} for statement in statements]
    if any(not read <= own for read, own in zip(loaded, used, strict=True)):
        raise Refused("a loop or a condition around a block that reads a tensor")
    return IndependentResults(func, [_part(func, *pair) for pair in zip(statements, used, strict=True)])


def _part(func: Any, statement: Any, used: Container[Any]) -> Any:
    numbers = [number for number, param in enumerate(func.params) if param in used]
    part = function_over(func, [statement], (), [func.params[number] for number in numbers])
    return with_literals_of(part, func, numbers)
