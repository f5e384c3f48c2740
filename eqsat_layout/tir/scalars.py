"""What a scalar expression gives where only some of what it reads is known.

In: a :class:`Value` and what its loads and iteration variables are: a number, a finite number within bounds, the value
that a reduction has so far, or anything at all. Out: the same of the whole. Only exact arithmetic gives numbers, so
that neither fused multiply-adds nor a wider intermediate type nor the mathematical library make a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eqsat_layout.tir.computation import Access, Value
from eqsat_layout.tir.scalar_functions import FUNCTIONS
from eqsat_layout.tir.scalar_values import ANYTHING, FINITE, Scalar, as_held, either, is_number

Load = Callable[[Access, bool], Scalar]
"""The value of a load; True if a condition over it depends on where the point is."""


@dataclass(frozen=True)
class Evaluator:
    """``iterations[i]`` is what variable ``i`` is; ``outside`` are the variables that the original never has so."""

    load: Load
    iterations: Sequence[Scalar]
    outside: frozenset[int] = frozenset()

    def value(self, node: Value, guarded: bool = False) -> Scalar:
        """What ``node`` gives. Raises :class:`UnsafeError` where its evaluation may fault."""
        if node.access is not None:
            return self.load(node.access, guarded)
        if node.op == "iter":
            return self.iterations[int(node.literal)]
        if node.op == "symbol":
            return FINITE
        if node.op == "const":
            number = as_held(node.number, node.dtype)
            return ANYTHING if number is None else number
        if node.op in ("prim.if_then_else", "Select"):
            return self._choice(node, guarded)
        function = FUNCTIONS.get(node.op.removeprefix("tirx.").removeprefix("prim."))
        args = [self.value(a, guarded) for a in node.args]
        return ANYTHING if function is None else function(node, args)

    def _choice(self, node: Value, guarded: bool) -> Scalar:
        """A decided ``if_then_else`` evaluates one side only; ``Select`` both, always."""
        condition = self.value(node.args[0], guarded)
        guarded = guarded or any(self._is_outside(v) for v in node.args[0].walk())
        sides = node.args[1:]
        if node.op != "Select" and is_number(condition):
            sides = sides[:1] if condition else sides[1:]
        found = [self.value(side, guarded) for side in sides]
        if is_number(condition) and found[1:]:
            return found[0] if condition else found[1]
        return found[0] if not found[1:] else either(*found)

    def _is_outside(self, node: Value) -> bool:
        if node.op == "iter":
            return int(node.literal) in self.outside
        indices = node.access.indices if node.access is not None else ()
        return any(i in self.outside for index in indices for i in index.iters)


# ---- the functions ----
