"""Operands that an op can't tell from others: what a rule forgets that takes an op for one-to-one.

In: a model, an op, its operands, and the place of one. Out: another tensor for that place of which the op gives the
same, if one is found: elements are others, stand elsewhere, or lose their sign.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from eqsat_layout.soundness.rules.bits import Array, specials
from eqsat_layout.soundness.rules.ill_typed import IllTypedError
from eqsat_layout.soundness.rules.model import RuleModel
from eqsat_layout.soundness.rules.values import Values
from eqsat_layout.tir.arithmetic import are_floats

TRIED = 6
"""Numbers that are tried in the place of elements: of all, and of one."""
_ANOTHER = "another operand of"
"""What a counterexample says of one."""


def forgotten_operand(model: RuleModel, name: str, operands: tuple[int, ...], place: int) -> Array | None:
    """Another operand in that place, with which the result is the same in all worlds."""
    values = model.values
    was_trying, values.is_trying = values.is_trying, True
    try:
        expected = values.op(name, operands)
        for candidate in _candidates(model, name, operands, place, expected):
            number = values.intern(candidate, (_ANOTHER, name))
            if number != operands[place] and _result(values, name, operands, place, candidate) == expected:
                return candidate
    except IllTypedError:  # one that is a tuple
        pass
    finally:
        values.is_trying = was_trying
    return None


def _candidates(model: RuleModel, name: str, operands: tuple[int, ...], place: int, expected: int) -> Iterator[Array]:
    values, rng = model.values, model.rng
    array = values.array(operands[place])
    numbers = specials(array.dtype)
    for number in rng.sample(list(numbers), min(TRIED, len(numbers))):
        filled = np.full_like(array, number)
        result = _result(values, name, operands, place, filled)
        same = None if result is None else _where_same(values, result, expected)
        if same is not None and same.shape == array.shape:  # element by element
            yield np.where(same, filled, array)
        changed = array.reshape(len(array), -1).copy()
        if changed.shape[1]:
            changed[:, rng.randrange(changed.shape[1])] = number
            yield changed.reshape(array.shape)
    yield from (np.flip(array, axis) for axis in range(1, array.ndim))
    if array.dtype.kind != "b":
        yield from (np.negative(array), np.abs(array))


def _result(values: Values, name: str, operands: tuple[int, ...], place: int, operand: Array) -> int | None:
    number = values.intern(operand, (_ANOTHER, name))
    try:
        return values.op(name, (*operands[:place], number, *operands[place + 1 :]))
    except IllTypedError:  # an index that is out of bounds
        return None


def _where_same(values: Values, a: int, b: int) -> Array | None:
    """Where two tensors have the same elements; None for tuples."""
    x, y = values.tensors[a], values.tensors[b]
    if isinstance(x, tuple) or isinstance(y, tuple):
        return None
    same = np.asarray(x == y)
    if are_floats(x.dtype):
        same = same & (np.signbit(x) == np.signbit(y)) | (np.isnan(x) & np.isnan(y))
    return same
