"""Products of quantised values as products of bytes, for targets with dot product instructions.

In: a Relax module. Out: the same function. A convolution or matrix product of quantised data with quantised constant
weights multiplies the bytes and adds up in 32 bits: ``sum (q - z) s * (w - v) t`` is
``s t (sum q (w - v) - z sum (w - v))``. These sums are exact; those of floats are rounded. The data have no signs where
the target's instructions want none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax

from eqsat_layout.graph.op_calls import with_attributes
from eqsat_layout.passes.quantised.product_match import ByteProduct, byte_product_of, spatial_axes
from eqsat_layout.passes.quantised.reader import SUM_DTYPE, Quantised, QuantisedReader, is_of_bytes
from eqsat_layout.passes.quantised.unsigned_bytes import SIGN_OFFSET, with_unsigned_bytes
from eqsat_layout.tir.structural import nodes_of, with_relax_functions

_UNSIGNED, _SIGNED = "uint8", "int8"


def multiply_bytes(mod: tvm.IRModule, *, may_have_signs: bool = False) -> tvm.IRModule:
    """``mod`` itself where there is no such product. ``may_have_signs``: the data of products."""
    given, mod = mod, mod if may_have_signs else with_unsigned_bytes(mod)

    def multiplied(function: Any) -> Any:
        if not any(is_of_bytes(var) for var in nodes_of(function, ir.Var)):
            return function
        multiplier = _Multiplier(mod, QuantisedReader.of(function), may_have_signs)
        written = multiplier.visit_expr(function)
        return written if multiplier.has_changed else function

    made = with_relax_functions(mod, multiplied)
    return given if made.same_as(mod) else relax.transform.DeadCodeElimination()(made)


@relax.expr_functor.mutator
class _Multiplier(relax.PyExprMutator):  # type: ignore[misc]
    """Writes each product of bytes with its sum in 32 bits, less what the zero point adds, times the scales."""

    def __init__(self, mod: tvm.IRModule, reader: QuantisedReader, may_have_signs: bool) -> None:
        super().__init__(mod)
        self.has_changed = False
        self._may_have_signs = may_have_signs
        self._reader = reader
        self._inside: set[Any] = set()

    def visit_dataflow_block_(self, block: Any) -> Any:
        self._inside = {binding.var for binding in block.bindings}
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: Any) -> None:
        product = byte_product_of(binding.value, self._reader)
        if product is not None and self._is_visible(product.data):
            self.has_changed = True
            binding = relax.VarBinding(binding.var, self._written(product))
        super().visit_var_binding_(binding)

    def _is_visible(self, data: Quantised) -> bool:
        """All variables of ``data`` are defined in this dataflow block or outside of all."""
        given = [one for one in (data.values, data.scale, data.zero) if isinstance(one, relax.DataflowVar)]
        return all(var in self._inside for var in given)

    def _written(self, product: ByteProduct) -> Any:
        op, emit, dtype = relax.op, self.builder_.emit, str(product.call.ty.dtype)
        values, zero = self._bytes(product.data)
        for move in product.data.moves:
            values = emit(ir.Call(move.op, [values, *move.args[1:]], attrs=move.attrs))
        padded, changed = self._padded(product, values, zero)
        weights = relax.const(product.weights, _SIGNED)
        made = with_attributes(product.call, [padded, weights], {"out_dtype": SUM_DTYPE, **changed})
        if not isinstance(zero, int):
            made = op.subtract(emit(made), emit(op.multiply(zero, relax.const(product.sums, SUM_DTYPE))))
        elif zero:
            made = op.subtract(emit(made), relax.const(zero * product.sums, SUM_DTYPE))
        if dtype == SUM_DTYPE:
            return made
        made, scale = op.astype(emit(made), "float32"), self._scale(product)
        made = made if scale is None else op.multiply(emit(made), scale)
        return made if dtype == "float32" else op.astype(emit(made), dtype)

    def _bytes(self, data: Quantised) -> tuple[Any, Any]:
        """The bytes that are multiplied, and their zero point: a number, or an int32 scalar."""
        op, emit = relax.op, self.builder_.emit
        values, zero = self.visit_expr(data.values), data.zero
        more = 0
        if str(data.values.ty.dtype) == _SIGNED and not self._may_have_signs:
            more = SIGN_OFFSET
            wide = emit(op.add(emit(op.astype(values, "int16")), relax.const(more, "int16")))
            values = emit(op.astype(wide, _UNSIGNED))
        if zero is None or isinstance(zero, int):
            return values, (zero or 0) + more
        own = emit(op.reshape(self.visit_expr(zero), []))
        own = emit(op.astype(own, SUM_DTYPE))
        return values, emit(op.add(own, relax.const(more, SUM_DTYPE))) if more else own

    def _padded(self, product: ByteProduct, values: Any, zero: Any) -> tuple[Any, dict[str, Any]]:
        """The data padded with its zero point, channels to whole words; and the attributes that change."""
        attrs, rank = product.call.attrs, int(product.call.args[0].ty.ndim)
        padding = [int(one) for one in getattr(attrs, "padding", ())]
        widths = [0] * 2 * rank
        changed: dict[str, Any] = {}
        if product.channels is not None:
            axis, more = product.channels
            widths[2 * axis + 1] = more
        if any(padding) and zero != 0:
            half = len(padding) // 2
            for number, axis in enumerate(spatial_axes(str(attrs.data_layout))):
                widths[2 * axis : 2 * axis + 2] = [padding[number], padding[half + number]]
            changed["padding"] = [0] * len(padding)
        if not any(widths):
            return values, changed
        if isinstance(zero, int):
            return self.builder_.emit(relax.op.nn.pad(values, widths, pad_value=float(zero))), changed
        return self._padded_with(values, widths, zero), changed

    def _padded_with(self, values: Any, widths: Sequence[int], zero: Any) -> Any:
        """The same with a zero point that is known at run time only. Weights of the added channels are 0."""
        op, emit = relax.op, self.builder_.emit
        padded = emit(op.nn.pad(values, widths))
        shape = [1] * int(values.ty.ndim)
        inside = np.ones(shape, "bool")
        for axis, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True)):
            if before or after:
                rim = [(0, 0)] * len(shape)
                rim[axis] = (before, after)
                inside = np.pad(inside.repeat(int(values.ty.shape.values[axis]), axis), rim)
        around = emit(op.astype(zero, str(values.ty.dtype)))
        return emit(op.where(relax.const(inside, "bool"), padded, around))

    def _scale(self, product: ByteProduct) -> Any:
        """The scale of the data times that of the weights; ``None`` where both are 1."""
        scale, own = product.data.scale, product.scales
        weights = None if own is None else relax.const(own.astype("float32"), "float32")
        if scale is None or isinstance(scale, float):
            factor = 1.0 if scale is None else np.float32(scale)
            both = factor if own is None else own.astype("float32") * np.float32(factor)
            return None if scale is None and own is None else relax.const(np.asarray(both, "float32"), "float32")
        single = self.builder_.emit(relax.op.reshape(self.visit_expr(scale), []))
        if str(scale.ty.dtype) != "float32":
            single = self.builder_.emit(relax.op.astype(single, "float32"))
        return single if weights is None else self.builder_.emit(relax.op.multiply(single, weights))
