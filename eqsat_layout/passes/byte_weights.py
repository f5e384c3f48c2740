"""Products of a few rows of floats with weights that bytes stand for, which stay bytes.

In: a Relax module. Out: the same, in which such a product is a PrimFunc that reads bytes and their scales. Otherwise
weights are computed ahead, as floats: four times as much to read, and reading is what a product of a few rows takes its
time for. Weights lie in blocks of columns; a scale for each column is taken after the sum, others within it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
from tvm import ir, relax, te, tirx

from eqsat_layout.passes.quantised import BYTES, Quantised, QuantisedReader, is_of_bytes
from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import nodes_of

Array = npt.NDArray[Any]

_FLOAT: Final = "float32"
_COLUMNS: Final = (16, 8)
"""Of a block of weights: what vectors hold."""
_SMALLEST: Final = 1 << 15
"""Elements of weights that are worth it: fewer stay in the L2 cache as floats."""
_LEAST: Final = 16
"""Elements that share a scale, at least."""


def keep_byte_weights(mod: tvm.IRModule, most_rows: int) -> tvm.IRModule:
    """``mod`` itself where there is no such product of ``most_rows`` at most, as far as their number is known.

    Where it is not, a program runs for one token mostly; for many rows it takes a quarter longer so.
    """
    functions = [
        (name, function)
        for name, function in mod.functions_items()
        if isinstance(function, relax.Function) and _has_bytes(function)
    ]
    for name, function in functions:
        keeper = _Keeper(mod, QuantisedReader.of(function), most_rows)
        written = keeper.visit_expr(function)
        if keeper.has_changed:
            keeper.builder_.update_func(name, written)
            mod = relax.transform.DeadCodeElimination()(keeper.builder_.get())
    return mod


def _has_bytes(function: Any) -> bool:
    return any(is_of_bytes(expr) for expr in nodes_of(function, ir.Var)) or any(
        str(getattr(expr.ty, "dtype", "")) in BYTES for expr in nodes_of(function, ir.GenericConst)
    )


@relax.expr_functor.mutator
class _Keeper(relax.PyExprMutator):  # type: ignore[misc]
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
        if rows is None or not 0 < _least(rows) <= self._most_rows:
            return None
        weights = self._reader.read(call.args[1])
        signed = None if weights is None else weights.signed
        if weights is None or signed is None or signed.size < _SMALLEST:
            return None
        block = next((size for size in _COLUMNS if signed.shape[1] % size == 0), 0)
        scales = _scales_of(weights) if block else None
        return None if scales is None else self._written(call, signed, scales, rows, block)

    def _written(self, call: Any, numbers: Array, scales: Array, rows: Sequence[Any], block: int) -> Any:
        op, emit = relax.op, self.builder_.emit
        data, is_matrix = self.visit_expr(call.args[0]), len(rows) == 1
        if not is_matrix:
            data = emit(op.reshape(data, [math.prod(rows), numbers.shape[0]]))
        operands = [data, relax.const(_in_blocks(numbers, block), "int8")]
        if len(scales) > 1:
            operands.append(relax.const(_in_blocks(scales, block), _FLOAT))
        made = self.builder_.call_te(_sums, *operands, primfunc_name_hint="product_of_byte_weights")
        if len(scales) == 1:
            made = op.multiply(emit(made), relax.const(scales, _FLOAT))
        return made if is_matrix else op.reshape(emit(made), call.ty.shape)


def _sums(data: te.Tensor, weights: te.Tensor, *scales: te.Tensor) -> te.Tensor:
    """Weights in blocks of columns; a scale for each column of so many of their rows, if there are any."""
    blocks, steps, block = (int(extent) for extent in weights.shape)
    k = te.reduce_axis((0, steps), "k")

    def element(i: Any, n: Any) -> Any:
        one = weights[n // block, k, n % block].astype(_FLOAT)
        for own in scales:
            one = one * own[n // block, k // (steps // int(own.shape[1])), n % block]
        return te.sum(data[i, k] * one, axis=k)

    return te.compute((data.shape[0], blocks * block), element, name="product_of_byte_weights")


def _in_blocks(rows: Array, block: int) -> Array:
    """Columns in blocks, which come first."""
    return np.ascontiguousarray(rows.reshape(len(rows), -1, block).transpose(1, 0, 2))


def _rows_of(call: Any) -> list[Any] | None:
    """The extents of the data's rows in a product in float32, with one matrix; ``None`` for anything else."""
    if not is_call(call, "relax.matmul"):
        return None
    types = [arg.ty for arg in call.args]
    if any(ty.shape is None or str(ty.dtype) != _FLOAT for ty in (*types, call.ty)) or types[1].ndim != 2:
        return None
    return list(types[0].shape.values[:-1])


def _least(extents: Sequence[Any]) -> int:
    """Of their product, where some are not known."""
    return math.prod(int(extent) if isinstance(extent, tirx.IntImm) else 1 for extent in extents)


def _scales_of(weights: Quantised) -> Array | None:
    """One row of scales, or one for each so many rows of the weights; ``None`` where too few share one."""
    steps = weights.values.shape[0]
    scale = np.asarray(1.0 if weights.scale is None else weights.scale, _FLOAT)
    whole = np.broadcast_to(scale, weights.values.shape)
    if np.array_equal(whole, np.broadcast_to(whole[:1], whole.shape)):
        return np.array(whole[:1])
    for size in _sizes(steps):
        parts = whole.reshape(steps // size, size, -1)
        if np.array_equal(parts, np.broadcast_to(parts[:, :1], parts.shape)):
            return np.array(parts[:, 0])
    return None


def _sizes(steps: int) -> Sequence[int]:
    """The largest first."""
    return [size for size in range(steps // 2, _LEAST - 1, -1) if steps % size == 0]
