"""Ops of ONNX that TVM's frontend does not take and that ONNX does not write in others either.

In: a node's inputs and attributes. Out: its result, in Relax; :class:`EqsatError` for what is not done.
"""
# mypy: disable-error-code="valid-type, no-untyped-def, untyped-decorator"

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

from tvm import ir, relax, te, tirx
from tvm.script import tirx as T

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.window_maxima import Windows, count, maxima, places_of


def converted(builder: relax.BlockBuilder, kind: str, inputs: Any, attributes: dict[str, Any]) -> Any:
    """The result of a node."""
    return _MAKERS[kind](builder, [*inputs, *[None] * 4], attributes)


def takes(kind: str, results: int) -> bool:
    """Whether nodes of this op, with so many results, are made here."""
    return kind in _MAKERS and (kind != "MaxPool" or results > 1)


def _products(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``CumProd``."""
    data, axis = inputs[:2]
    if not isinstance(axis, ir.GenericConst):
        raise EqsatError("CumProd along an axis that is known at run time only is not done")
    rank = len(data.ty.shape)
    along = int(axis.value.numpy().reshape(-1)[0]) % rank
    turned = bool(attributes.get("reverse"))
    if turned:
        data = builder.emit(relax.op.flip(data, along))
    own = bool(attributes.get("exclusive"))
    made = builder.emit(relax.op.cumprod(data, along, exclusive=own))
    return builder.emit(relax.op.flip(made, along)) if turned else made


def _same_bits(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``BitCast``."""
    helper = importlib.import_module("onnx.helper")
    dtype = str(helper.tensor_dtype_to_np_dtype(int(attributes["to"])))
    return builder.emit_te(
        lambda x: te.compute(x.shape, lambda *at: tirx.reinterpret(dtype, x(*at)), "bits"),
        inputs[0],
        primfunc_name_hint="same_bits",
    )


def _turned(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``ReverseSequence``: of each sequence of a batch as many steps as it has."""
    time, batch = int(attributes.get("time_axis", 0)), int(attributes.get("batch_axis", 1))

    def turned(x: Any, lengths: Any) -> Any:
        def element(*at: Any) -> Any:
            length, step = tirx.Cast("int64", lengths(at[batch])), at[time]
            place = tirx.Select(step < length, length - 1 - step, step)
            return x(*at[:time], place, *at[time + 1 :])

        return te.compute(x.shape, element, "turned")

    return builder.emit_te(turned, *inputs[:2], primfunc_name_hint="reverse_sequence")


def _pooled(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``MaxPool`` with its second result."""
    data = inputs[0]
    extents = [int(e) if isinstance(e, tirx.IntImm) else None for e in data.ty.shape.values]
    if None in extents[1:]:
        raise EqsatError("the places of maxima in data of unknown size are not done")
    sizes = [int(size) for size in attributes["kernel_shape"]]
    rank, own = len(sizes), [e for e in extents[2:] if e is not None]
    strides = [int(x) for x in attributes.get("strides", [1] * rank)]
    dilations = [int(x) for x in attributes.get("dilations", [1] * rank)]
    mode = attributes.get("auto_pad", b"NOTSET").decode()
    if mode not in ("NOTSET", "VALID"):
        wide = [(-(-e // s) - 1) * s + (k - 1) * d + 1 - e for e, s, k, d in zip(own, strides, sizes, dilations)]  # noqa: B905
        both = [max(0, one) for one in wide]
        before = [(one + (mode == "SAME_LOWER")) // 2 for one in both]
    else:
        pads = [int(x) for x in attributes.get("pads", [0] * 2 * rank)]
        before, both = pads[:rank], [a + b for a, b in zip(pads[:rank], pads[rank:], strict=True)]
    is_ceil = bool(attributes.get("ceil_mode"))
    counts = [
        count(own[i], sizes[i], strides[i], both[i], dilations[i], is_ceil=is_ceil, before=before[i])
        for i in range(rank)
    ]
    values, places = maxima(builder, data, Windows(sizes, strides, before, dilations, counts))
    turned = bool(attributes.get("storage_order"))
    return relax.Tuple([values, places_of(places, own, extents[1] or 0, builder, turned=turned)])


def _determinant(builder: relax.BlockBuilder, inputs: Any, _: dict[str, Any]) -> Any:
    """``Det``: elimination with the largest pivot."""
    *outer, size, _ = inputs[0].ty.shape.values
    if not isinstance(size, tirx.IntImm) or not all(isinstance(e, tirx.IntImm) for e in outer):
        raise EqsatError("determinants of matrices of unknown size are not done")
    dtype, n, many = str(inputs[0].ty.dtype), int(size), 1
    for extent in outer:
        many *= int(extent)
    flat = builder.emit(relax.op.reshape(inputs[0], [many, n, n]))
    kernel = builder.add_func(_determinants(many, n, dtype), "determinants")
    made = builder.emit(relax.call_tir(kernel, [flat], relax.TensorType([many], dtype)))
    return builder.emit(relax.op.reshape(made, list(outer)))


def _determinants(many: int, n: int, dtype: str) -> tirx.PrimFunc:
    @T.prim_func(private=True, s_tir=True)
    def determinants(x: T.Buffer((many, n, n), dtype), y: T.Buffer((many,), dtype)):
        own = T.sblock_alloc_buffer((n, n), dtype)
        best = T.sblock_alloc_buffer((1,), "int32")
        held = T.sblock_alloc_buffer((1,), dtype)
        with T.sblock("elimination"):
            T.reads(x[:, :, :])
            T.writes(y[:], own[:, :], best[:], held[:])
            for b in range(many):
                for i, j in T.grid(n, n):
                    own[i, j] = x[b, i, j]
                y[b] = T.Cast(dtype, 1)
                for k in range(n):
                    best[0] = k
                    for i in range(n):
                        if i > k:
                            if T.abs(own[i, k]) > T.abs(own[best[0], k]):
                                best[0] = i
                    if best[0] != k:
                        y[b] = T.Cast(dtype, 0) - y[b]
                        for j in range(n):
                            held[0] = own[k, j]
                            own[k, j] = own[best[0], j]
                            own[best[0], j] = held[0]
                    y[b] = y[b] * own[k, k]
                    if own[k, k] != T.Cast(dtype, 0):
                        for i in range(n):
                            if i > k:
                                held[0] = own[i, k] / own[k, k]
                                for j in range(n):
                                    own[i, j] = own[i, j] - held[0] * own[k, j]

    return determinants


_MAKERS: Final[dict[str, Callable[..., Any]]] = {
    "CumProd": _products,
    "BitCast": _same_bits,
    "ReverseSequence": _turned,
    "MaxPool": _pooled,
    "Det": _determinant,
}
