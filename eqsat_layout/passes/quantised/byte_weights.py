"""Products of a few rows of floats with quantised weights that stay bytes in memory.

In: a Relax module. Out: the same function. Such a product is a PrimFunc that reads the bytes and their scales. Constant
folding would make floats of them, four times the bytes, and a product of a few rows is bound by reading its weights.
The weights lie in blocks of columns. One scale per column is applied to the sum, scales of groups within it. Weights of
at most 16 steps, as those of 4 bits are, lie two to a byte.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
from tvm import ir, relax, te, tirx

from eqsat_layout.passes.quantised.reader import BYTE_RANGES, Quantised, QuantisedReader, is_of_bytes
from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import nodes_of

Array = npt.NDArray[Any]

_FLOAT: Final = "float32"
_COLUMNS: Final = (16, 8)
"""Widths of a block of columns, the first that divides the weights: what vectors hold."""
_LEAST_WEIGHTS: Final = 1 << 15
"""Elements of weights from which on it pays: fewer stay in the L2 cache as floats."""
_HALF_BITS: Final = 4
_HALF: Final = 15
"""The largest number of half a byte."""
_MIDDLE: Final = 8
_LEAST_SHARED: Final = 16
"""Elements that share a scale, at least: for fewer, multiplying by scales takes longer than reading floats."""


def keep_byte_weights(mod: tvm.IRModule, most_rows: int) -> tvm.IRModule:
    """Keeps the weights of products of at most ``most_rows`` rows; ``mod`` itself where there are none.

    A symbolic number of rows counts as 1: such programs mostly run for one token. With many rows they take a quarter
    longer so.
    """
    functions = [
        (name, function)
        for name, function in mod.functions_items()
        if isinstance(function, relax.Function) and _has_bytes(function)
    ]
    for name, function in functions:
        writer = _ByteWeightWriter(mod, QuantisedReader.of(function), most_rows)
        written = writer.visit_expr(function)
        if writer.has_changed:
            writer.builder_.update_func(name, written)
            mod = relax.transform.DeadCodeElimination()(writer.builder_.get())
    return mod


def _has_bytes(function: Any) -> bool:
    return any(is_of_bytes(expr) for expr in nodes_of(function, ir.Var)) or any(
        str(getattr(expr.ty, "dtype", "")) in BYTE_RANGES for expr in nodes_of(function, ir.GenericConst)
    )


@relax.expr_functor.mutator
class _ByteWeightWriter(relax.PyExprMutator):  # type: ignore[misc]
    """Writes the products whose weights stay bytes as calls of a PrimFunc."""

    def __init__(self, mod: tvm.IRModule, reader: QuantisedReader, most_rows: int) -> None:
        super().__init__(mod)
        self.has_changed = False
        self._reader, self._most_rows = reader, most_rows

    def visit_var_binding_(self, binding: Any) -> None:
        made = self._product(binding.value)
        if made is not None:
            self.has_changed = True
            binding = relax.VarBinding(binding.var, made)
        super().visit_var_binding_(binding)

    def _product(self, call: Any) -> Any:
        rows = _rows_of(call)
        if rows is None or not 0 < _least_product(rows) <= self._most_rows:
            return None
        weights = self._reader.read(call.args[1])
        signed = None if weights is None else weights.signed
        if weights is None or signed is None or signed.size < _LEAST_WEIGHTS:
            return None
        block = next((size for size in _COLUMNS if signed.shape[1] % size == 0), 0)
        scales = _scales_of(weights) if block else None
        return None if scales is None else self._written(call, signed, scales, rows, block)

    def _written(self, call: Any, numbers: Array, scales: Array, rows: Sequence[Any], block: int) -> Any:
        op, emit = relax.op, self.builder_.emit
        data, is_matrix = self.visit_expr(call.args[0]), len(rows) == 1
        if not is_matrix:
            data = emit(op.reshape(data, [math.prod(rows), numbers.shape[0]]))
        halves = _half_bytes(numbers, len(scales))
        makes: Callable[..., te.Tensor] = _sums if halves is None else halves.sums
        constants = [numbers] if halves is None else halves.constants
        if len(scales) > 1:
            constants = [*constants, scales]
        operands = [relax.const(_in_blocks(own, block), str(own.dtype)) for own in constants]
        made = self.builder_.call_te(makes, data, *operands, primfunc_name_hint="product_of_byte_weights")
        if len(scales) == 1:
            made = op.multiply(emit(made), relax.const(scales, _FLOAT))
        return made if is_matrix else op.reshape(emit(made), call.ty.shape)


def _sums(data: te.Tensor, weights: te.Tensor, *scales: te.Tensor) -> te.Tensor:
    """``weights``: (blocks, rows, columns of a block); ``scales``, if any: the same, one row per group of rows."""
    blocks, steps, block = (int(extent) for extent in weights.shape)
    k = te.reduce_axis((0, steps), "k")

    def element(i: Any, n: Any) -> Any:
        one = weights[n // block, k, n % block].astype(_FLOAT)
        for own in scales:
            one = one * _of_group(own, steps, k, n)
        return te.sum(data[i, k] * one, axis=k)

    return te.compute((data.shape[0], blocks * block), element, name="product_of_byte_weights")


def _of_group(rows: te.Tensor, steps: int, k: Any, n: Any) -> Any:
    """Of ``rows``, one for each group of ``steps``, in blocks of columns: what step ``k`` of column ``n`` has."""
    block = int(rows.shape[2])
    return rows[n // block, k // (steps // int(rows.shape[1])), n % block]


@dataclass(frozen=True)
class _HalfBytes:
    """``pairs``: of two rows of weights, the first in the lower bits. ``least``: what is to be added to each, a row for
    each group; ``None``: -8 for all."""

    pairs: Array
    least: Array | None

    @property
    def constants(self) -> list[Array]:
        """What :meth:`sums` reads beside data and scales."""
        return [self.pairs] if self.least is None else [self.pairs, self.least]

    def sums(self, data: te.Tensor, pairs: te.Tensor, *others: te.Tensor) -> te.Tensor:
        """Like :func:`_sums`; ``others``: :attr:`least` and scales, as far as there are any, in blocks."""
        blocks, steps, block = (int(extent) for extent in pairs.shape)
        k, half = te.reduce_axis((0, steps), "k"), te.reduce_axis((0, 2), "half")
        scales = others if self.least is None else others[1:]

        def element(i: Any, n: Any) -> Any:
            both = pairs[n // block, k, n % block].astype("int32")
            low, high = both & tirx.const(_HALF, "int32"), both >> tirx.const(_HALF_BITS, "int32")
            least = tirx.const(-_MIDDLE) if self.least is None else _of_group(others[0], steps, k, n)
            one = (tirx.Select(half == 0, low, high) + least.astype("int32")).astype(_FLOAT)  # whole: zeros stay zeros
            for own in scales:
                one = one * _of_group(own, steps, k, n)
            return te.sum(data[i, 2 * k + half] * one, axis=[k, half])

        return te.compute((data.shape[0], blocks * block), element, name="product_of_byte_weights")


def _half_bytes(numbers: Array, groups: int) -> _HalfBytes | None:
    """``numbers`` so, with as many groups of rows; ``None`` where some column of a group has numbers too far apart."""
    steps, columns = numbers.shape
    if steps % (2 * groups):
        return None
    parts = numbers.reshape(groups, steps // groups, columns)
    least = parts.min(axis=1, keepdims=True)
    if (parts.max(axis=1, keepdims=True).astype("int32") - least > _HALF).any():
        return None
    is_around_zero = numbers.min() >= -_MIDDLE and numbers.max() < _MIDDLE
    firsts = np.int8(-_MIDDLE) if is_around_zero else least
    low, high = (parts - firsts).astype("uint8").reshape(steps // 2, 2, columns).transpose(1, 0, 2)
    return _HalfBytes(low | high << _HALF_BITS, None if is_around_zero else least[:, 0])


def _in_blocks(rows: Array, block: int) -> Array:
    """(rows, columns) as (blocks, rows, columns of a block)."""
    return np.ascontiguousarray(rows.reshape(len(rows), -1, block).transpose(1, 0, 2))


def _rows_of(call: Any) -> list[Any] | None:
    """The extents of the data's rows in a product in float32, with one matrix; ``None`` for anything else."""
    if not is_call(call, "relax.matmul"):
        return None
    types = [arg.ty for arg in call.args]
    if any(ty.shape is None or str(ty.dtype) != _FLOAT for ty in (*types, call.ty)) or types[1].ndim != 2:
        return None
    return list(types[0].shape.values[:-1])


def _least_product(extents: Sequence[Any]) -> int:
    """The least that the product of the extents can be: symbolic ones count as 1."""
    return math.prod(int(extent) if isinstance(extent, tirx.IntImm) else 1 for extent in extents)


def _scales_of(weights: Quantised) -> Array | None:
    """The scales: one row for all rows of the weights, or for each group; ``None`` where groups are too small."""
    steps = weights.values.shape[0]
    scale = np.asarray(1.0 if weights.scale is None else weights.scale, _FLOAT)
    whole = np.broadcast_to(scale, weights.values.shape)
    if np.array_equal(whole, np.broadcast_to(whole[:1], whole.shape)):
        return np.array(whole[:1])
    for size in _group_sizes(steps):
        parts = whole.reshape(steps // size, size, -1)
        if np.array_equal(parts, np.broadcast_to(parts[:, :1], parts.shape)):
            return np.array(parts[:, 0])
    return None


def _group_sizes(steps: int) -> Sequence[int]:
    """The sizes that groups of rows may have, the largest first."""
    return [size for size in range(steps // 2, _LEAST_SHARED - 1, -1) if steps % size == 0]
