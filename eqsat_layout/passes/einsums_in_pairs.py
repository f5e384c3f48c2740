"""Einsums of three operands and more, two at a time.

In: a Relax module. Out: the same with einsums of two operands, those first whose product takes the fewest
multiplications. A sum over all axes at once multiplies as often as the extents of all of them together: of three
matrices n to the fourth in place of twice n cubed. What lies between is float32 where operands are narrower floats: a
sum of products may be beyond 65504 of which the whole is not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

import tvm
from tvm import relax, tirx

from eqsat_layout.passes.changed_calls import with_changed_calls

_EINSUM: Final = tvm.ir.Op.get("relax.einsum")
_WIDE: Final = ("float32", "float64")


def einsums_in_pairs(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where none has more than two operands. Those that repeat a letter in an operand, or have dots,
    stay."""
    return with_changed_calls(mod, lambda call: bool(_terms(call)), _Pairs)


def _terms(call: Any) -> tuple[list[str], str] | None:
    """The letters of each operand and of the result; None for what stays."""
    if call.op != _EINSUM or not isinstance(call.args[0], relax.Tuple) or len(call.args[0].fields) < 3:
        return None
    left, arrow, result = str(call.attrs.subscripts).replace(" ", "").partition("->")
    terms = left.split(",")
    if "." in left or any(len(set(term)) < len(term) for term in terms) or _extents(call, terms) is None:
        return None
    letters = "".join(terms)
    return terms, result if arrow else "".join(sorted(letter for letter in {*letters} if letters.count(letter) == 1))


def _extents(call: Any, terms: Sequence[str]) -> dict[str, int] | None:
    """By letter; None where one is not known."""
    found: dict[str, int] = {}
    for operand, term in zip(call.args[0].fields, terms, strict=True):
        shape = operand.ty.shape if isinstance(operand.ty, relax.TensorType) else None
        values = list(shape.values) if isinstance(shape, relax.ShapeExpr) else []
        if len(values) != len(term) or not all(isinstance(value, tirx.IntImm) for value in values):
            return None
        for letter, value in zip(term, values, strict=True):
            if found.setdefault(letter, int(value)) != int(value):  # one of them is repeated
                return None
    return found


@relax.expr_functor.mutator
class _Pairs(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        found = _terms(call)
        if found is None:
            return call
        terms, result = found
        extents, operands = _extents(call, terms) or {}, list(call.args[0].fields)
        own_type = str(operands[0].ty.dtype)
        is_narrow = "float" in own_type and own_type not in _WIDE  # bfloat16 and those of 8 bits among them
        if is_narrow:
            operands = [self.builder_.emit(relax.op.astype(operand, "float32")) for operand in operands]

        def multiplications(pair: tuple[int, int]) -> int:
            return math.prod(extents[letter] for letter in {*terms[pair[0]], *terms[pair[1]]})

        while len(terms) > 2:
            first, second = min(itertools.combinations(range(len(terms)), 2), key=multiplications)
            others = "".join(term for n, term in enumerate(terms) if n not in (first, second)) + result
            own = "".join(letter for letter in dict.fromkeys(terms[first] + terms[second]) if letter in others)
            made = self.builder_.emit(
                relax.op.einsum([operands[first], operands[second]], f"{terms[first]},{terms[second]}->{own}")
            )
            terms[first], operands[first] = own, made
            del terms[second], operands[second]
        made = relax.op.einsum(operands, f"{','.join(terms)}->{result}")
        return self.builder_.normalize(relax.op.astype(self.builder_.emit(made), own_type) if is_narrow else made)
