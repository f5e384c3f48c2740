"""Products of quantised numbers as products of bytes.

In: a Relax module. Out: the same, in which a convolution or matrix product of numbers that bytes stand for, times
constant weights that bytes stand for, multiplies these bytes and adds up in 32 bits: ``sum (q - z) s * (w - v) t`` is
``s t (sum q (w - v) - z sum (w - v))``. The sums are exact, where those of floats are rounded. For targets with
instructions for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
from tvm import ir, relax, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.graph.op_calls import with_attributes
from eqsat_layout.passes.quantised import BYTES, FLOATS, SUM, Quantised, QuantisedReader, is_of_bytes
from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import nodes_of

_UNSIGNED, _SIGNED = "uint8", "int8"
_HALF_WAY: Final = 128
"""What an unsigned byte is more than the signed one with the other first bit."""
_LARGEST: Final = 255
_LARGEST_SUM: Final = (1 << 31) - 1
_WORD: Final = 4
"""Bytes that are multiplied and added up together."""


def multiply_bytes(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where there is no such product."""
    given, mod = mod, _without_signs(mod)
    changed: dict[Any, Any] = {}
    for name, function in mod.functions_items():
        if isinstance(function, relax.Function) and any(is_of_bytes(var) for var in nodes_of(function, ir.Var)):
            multiplier = _Multiplier(mod, QuantisedReader.of(function))
            written = multiplier.visit_expr(function)
            if multiplier.has_changed:
                changed[name] = written
    if not changed:
        return given
    functions = {**dict(mod.functions_items()), **changed}
    return relax.transform.DeadCodeElimination()(tvm.IRModule(functions, mod.attrs, mod.global_infos))


@dataclass(frozen=True)
class _Product:
    """``call`` of ``data`` and ``weights``, whose zero is taken from them already.

    ``scales``: of the weights of each channel of the result, or one number. ``sums``: of the weights of each channel.
    ``channels``: the axis of the data that is to have more elements, and how many.
    """

    call: Any
    data: Quantised
    weights: npt.NDArray[Any]
    scales: npt.NDArray[Any] | None
    sums: npt.NDArray[Any]
    channels: tuple[int, int] | None


def _without_signs(mod: tvm.IRModule) -> tvm.IRModule:
    """Numbers that are quantised to signed bytes, and read as what these stand for only, quantised to unsigned ones."""
    changed = {
        name: _Unsigner(mod, signed).visit_expr(function)
        for name, function in mod.functions_items()
        if isinstance(function, relax.Function) and (signed := _signed(function))
    }
    if not changed:
        return mod
    return tvm.IRModule({**dict(mod.functions_items()), **changed}, attrs=mod.attrs, global_infos=mod.global_infos)


def _signed(function: Any) -> set[Any]:
    """The variables of such bytes."""
    bindings = nodes_of(function, relax.VarBinding)
    found = {b.var for b in bindings if is_call(b.value, "relax.quantize") and str(b.value.ty.dtype) == _SIGNED}
    found = {b.var for b in bindings if b.var in found and isinstance(b.var, relax.DataflowVar) and _has_zero(b.value)}
    others = [b.value for b in bindings if not is_call(b.value, "relax.dequantize") or not _has_zero(b.value)]
    others += [cast.value for cast in nodes_of(function, relax.MatchCast)]
    others += [sequence.body for sequence in nodes_of(function, relax.SeqExpr)]
    return found - {var for other in others for var in relax.analysis.free_vars(other)}


def _has_zero(call: Any) -> bool:
    """That is known, and a byte itself."""
    return isinstance(call.args[2], ir.GenericConst) and str(call.args[2].ty.dtype) == _SIGNED


@relax.expr_functor.mutator
class _Unsigner(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, signed: set[Any]) -> None:
        super().__init__(mod)
        self._signed = signed

    def visit_var_binding_(self, binding: Any) -> None:
        call = binding.value
        is_read = is_call(call, "relax.dequantize") and call.args[0] in self._signed
        if binding.var not in self._signed and not is_read:
            super().visit_var_binding_(binding)
            return
        values, scale = (self.visit_expr(arg) for arg in call.args[:2])
        zero = relax.const((call.args[2].value.numpy().astype(SUM) + _HALF_WAY).astype(_UNSIGNED), _UNSIGNED)
        make = relax.op.dequantize if is_read else relax.op.quantize
        dtype = str(call.ty.dtype) if is_read else _UNSIGNED
        made = make(values, scale, zero, axis=int(call.attrs.axis), out_dtype=dtype)
        if is_read:
            super().visit_var_binding_(relax.VarBinding(binding.var, made))
        else:
            self.set_var_remap(binding.var, self.builder_.emit(made))


@relax.expr_functor.mutator
class _Multiplier(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, reader: QuantisedReader) -> None:
        super().__init__(mod)
        self.has_changed = False
        self._reader = reader
        self._inside: set[Any] = set()

    def visit_dataflow_block_(self, block: Any) -> Any:
        self._inside = {binding.var for binding in block.bindings}
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: Any) -> None:
        product = _product(binding.value, self._reader)
        if product is not None and self._is_visible(product.data):
            self.has_changed = True
            binding = relax.VarBinding(binding.var, self._written(product))
        super().visit_var_binding_(binding)

    def _is_visible(self, data: Quantised) -> bool:
        """Nothing of it is of another dataflow block."""
        given = [one for one in (data.values, data.scale, data.zero) if isinstance(one, relax.DataflowVar)]
        return all(var in self._inside for var in given)

    def _written(self, product: _Product) -> Any:
        op, emit, dtype = relax.op, self.builder_.emit, str(product.call.ty.dtype)
        values, zero = self._unsigned(product.data)
        for move in product.data.moves:
            values = emit(ir.Call(move.op, [values, *move.args[1:]], attrs=move.attrs))
        padded, changed = self._padded(product, values, zero)
        weights = relax.const(product.weights, _SIGNED)
        made = with_attributes(product.call, [padded, weights], {"out_dtype": SUM, **changed})
        if not isinstance(zero, int):
            made = op.subtract(emit(made), emit(op.multiply(zero, relax.const(product.sums, SUM))))
        elif zero:
            made = op.subtract(emit(made), relax.const(zero * product.sums, SUM))
        if dtype == SUM:
            return made
        made, scale = op.astype(emit(made), "float32"), self._scale(product)
        made = made if scale is None else op.multiply(emit(made), scale)
        return made if dtype == "float32" else op.astype(emit(made), dtype)

    def _unsigned(self, data: Quantised) -> tuple[Any, Any]:
        """The bytes, without signs, and their zero: a number, or an int32 scalar."""
        op, emit = relax.op, self.builder_.emit
        values, zero = self.visit_expr(data.values), data.zero
        more = 0
        if str(data.values.ty.dtype) == _SIGNED:
            more = _HALF_WAY
            wide = emit(op.add(emit(op.astype(values, "int16")), relax.const(more, "int16")))
            values = emit(op.astype(wide, _UNSIGNED))
        if zero is None or isinstance(zero, int):
            return values, (zero or 0) + more
        own = emit(op.reshape(self.visit_expr(zero), []))
        own = emit(op.astype(own, SUM))
        return values, emit(op.add(own, relax.const(more, SUM))) if more else own

    def _padded(self, product: _Product, values: Any, zero: Any) -> tuple[Any, dict[str, Any]]:
        """The data with what stands for zero around it, and with so many channels that they fill words."""
        attrs, rank = product.call.attrs, int(product.call.args[0].ty.ndim)
        padding = [int(one) for one in getattr(attrs, "padding", ())]
        widths = [0] * 2 * rank
        changed: dict[str, Any] = {}
        if product.channels is not None:
            axis, more = product.channels
            widths[2 * axis + 1] = more
        if any(padding) and zero != 0:
            half = len(padding) // 2
            for number, axis in enumerate(_window_axes(str(attrs.data_layout))):
                widths[2 * axis : 2 * axis + 2] = [padding[number], padding[half + number]]
            changed["padding"] = [0] * len(padding)
        if not any(widths):
            return values, changed
        if isinstance(zero, int):
            return self.builder_.emit(relax.op.nn.pad(values, widths, pad_value=float(zero))), changed
        return self._padded_with(values, widths, zero), changed

    def _padded_with(self, values: Any, widths: Sequence[int], zero: Any) -> Any:
        """The same with a number that is worked out: weights of what is added to the channels are 0."""
        op, emit = relax.op, self.builder_.emit
        padded = emit(op.nn.pad(values, widths))
        shape = [1] * int(values.ty.ndim)
        inside = np.ones(shape, "bool")
        for axis, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True)):
            if before or after:
                around = [(0, 0)] * len(shape)
                around[axis] = (before, after)
                inside = np.pad(inside.repeat(int(values.ty.shape.values[axis]), axis), around)
        return emit(op.where(relax.const(inside, "bool"), padded, emit(op.astype(zero, _UNSIGNED))))

    def _scale(self, product: _Product) -> Any:
        """Of the data times that of the weights."""
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


def _product(call: Any, reader: QuantisedReader) -> _Product | None:
    """``None`` for what is no product of bytes."""
    if not isinstance(call, ir.Call) or not hasattr(call.attrs, "out_dtype") or len(call.args) != 2:
        return None
    if getattr(call.ty, "shape", None) is None or str(call.ty.dtype) not in (*FLOATS, SUM):
        return None
    data, weights = (reader.read(arg) for arg in call.args)
    if data is None or weights is None or data.is_constant or not weights.is_constant:
        return None
    try:
        return _checked(call, data, weights)
    except Refused:
        return None


def _checked(call: Any, data: Quantised, weights: Quantised) -> _Product:
    axes = _axes_of(call)
    signed, scales = weights.signed, _scales_along(weights, axes.outputs)
    if signed is None:
        raise Refused("weights that are more than a byte from their zero")
    numbers = signed.astype(SUM)
    if str(call.ty.dtype) == SUM and (data.scale is not None or scales is not None):
        raise Refused("scales of whole numbers")
    _check_scales(data.scale, scales)
    low, high = BYTES[str(data.values.ty.dtype)]
    if isinstance(data.zero, int) and not low <= data.zero <= high:
        raise Refused("a zero that is no such byte")
    if any(axes.padding) and not data.has_known_zero and not _has_known_windows(call):
        raise Refused("zeros that are not known around data whose size is not")
    depth, channels = numbers.shape[axes.inputs], None
    if depth % _WORD:
        if axes.data is None or axes.groups > 1 or 2 * depth < _WORD:
            raise Refused("channels that fill no words")
        more = -depth % _WORD
        channels = axes.data, more
        widths = [(0, more if axis == axes.inputs else 0) for axis in range(numbers.ndim)]
        numbers = np.pad(numbers, widths)
    others = tuple(axis for axis in range(numbers.ndim) if axis != axes.outputs)
    if int(np.abs(numbers).sum(axis=others).max()) * 2 * _LARGEST > _LARGEST_SUM:
        raise Refused("sums of more than 32 bits")
    kept = (axes.inputs,) if axes.data is None else others
    sums = numbers.sum(axis=kept, keepdims=axes.data is None).astype(SUM)
    shape = [1] * int(call.ty.ndim)
    shape[axes.result] = -1
    sums = sums if axes.data is None else sums.reshape(shape)
    if scales is not None and scales.ndim:
        scales = scales.reshape(shape)
    return _Product(call, data, numbers.astype(_SIGNED), scales, sums, channels)


def _check_scales(*scales: Any) -> None:
    """Those that are known, and their product: bytes times one of them are finite, and lose no bits."""
    known = [np.abs(np.asarray(one, "float64")) for one in scales if isinstance(one, float | np.ndarray)]
    both = known if len(known) < len(scales) else [*known, known[0] * known[1]]
    finest, largest = np.finfo("float32").tiny, np.finfo("float32").max / _LARGEST
    if any(np.any((one > largest) | ((one > 0) & (one < finest))) for one in both):
        raise Refused("scales at the ends of float32")


@dataclass(frozen=True)
class _Axes:
    """Of the weights those of ``inputs`` and ``outputs``, of the ``result`` and the ``data`` those of channels.

    There is none of the data where there is no window.
    """

    inputs: int
    outputs: int
    result: int
    data: int | None
    groups: int
    padding: Sequence[int]


def _axes_of(call: Any) -> _Axes:
    attrs = call.attrs
    if not hasattr(attrs, "kernel_layout"):
        rank = int(call.args[1].ty.ndim)
        if rank < 2 or int(call.args[0].ty.ndim) < 2:
            raise Refused("a product with a vector")
        return _Axes(rank - 2, rank - 1, int(call.ty.ndim) - 1, None, 1, ())
    if hasattr(attrs, "output_padding"):
        raise Refused("a transposed convolution")
    data, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    result = str(attrs.out_layout) or data
    if not (data + kernel + result).isupper() or not (data + kernel + result).isalpha():
        raise Refused("channels in blocks")
    places = kernel.find("I"), kernel.find("O"), result.find("C"), data.find("C")
    return _Axes(*places, int(attrs.groups), [int(one) for one in attrs.padding])


def _has_known_windows(call: Any) -> bool:
    """The sizes along the axes that have windows are numbers."""
    sizes = (call.args[0].ty.shape.values[axis] for axis in _window_axes(str(call.attrs.data_layout)))
    return all(isinstance(size, tirx.IntImm) for size in sizes)


def _window_axes(layout: str) -> list[int]:
    return [axis for axis, letter in enumerate(layout) if letter not in "NC"]


def _scales_along(weights: Quantised, axis: int) -> npt.NDArray[Any] | None:
    """One number, or one for each place of the axis; refused where others count."""
    scale = weights.scale
    if not isinstance(scale, np.ndarray):
        return None if scale is None else np.asarray(scale, "float32")
    whole = np.broadcast_to(scale, weights.values.shape)
    own = whole[tuple(slice(None) if number == axis else slice(0, 1) for number in range(whole.ndim))]
    if not np.array_equal(whole, np.broadcast_to(own, whole.shape)):
        raise Refused("scales along another axis than that of the channels")
    return own.reshape(-1).astype("float32")
