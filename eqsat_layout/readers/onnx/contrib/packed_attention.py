"""Attention whose queries, keys and values are one matrix product, and the embedding before it, as ONNX Runtime's
transformer optimiser writes them.

In: a node's inputs and attributes. Out: its results, in Relax.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from tvm import relax, sym, te, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.onnx.contrib.attention import causal_bias, make_attention, padding_bias, split_heads
from eqsat_layout.readers.onnx.contrib.operands import (
    EmittedOps,
    Maker,
    operand_shape,
    refuse_operand,
    results_of,
    static_extent,
)
from eqsat_layout.readers.onnx.contrib.scaled_integers import dequantised


def _attention(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``Attention``; ``past``: (2, batch, heads, length, size), the keys and values that come before the new ones."""
    x, weight, bias, mask, past, more = inputs[:6]
    refuse_operand(inputs[6], "past_sequence_length")
    for name in ("do_rotary", "past_present_share_buffer"):
        if attributes.get(name):
            raise EqsatError(f"with {name} is not done")
    heads, width = int(attributes["num_heads"]), static_extent(weight, 1)
    sizes = [int(size) for size in attributes.get("qkv_hidden_sizes", ())] or [width // 3] * 3
    whole = op.matmul(x, weight)
    if bias is not None:
        whole = op.add(whole, bias)
    ends = itertools.accumulate(sizes, initial=0)
    q, k, v = (split_heads(op, op.strided_slice(whole, [2], [a], [b]), heads) for a, b in itertools.pairwise(ends))
    if past is not None:
        k, v = (op.concat([op.take(past, relax.const(i, "int64"), 0), one], 2) for i, one in enumerate((k, v)))
    biases = [] if more is None else [more]
    if mask is not None:
        biases.append(_mask_bias(op, mask, k, float(attributes.get("mask_filter_value", -10000.0))))
    if attributes.get("unidirectional"):
        biases.append(causal_bias(op, q, k))
    made = make_attention(op, q, k, v, attributes, biases)
    is_kept = attributes["tvm_custom"]["num_outputs"] > 1
    return results_of([made, *([op.stack([k, v], 0)] if is_kept else [])], attributes)


def _mask_bias(op: EmittedOps, mask: Any, keys: Any, value: float) -> Any:
    """What is added to the scores: from a mask, or from where the keys of each sequence end (and start)."""
    rank = len(operand_shape(mask))
    if rank in (2, 3):
        return padding_bias(op, mask, value)
    if rank != 1:
        raise EqsatError(f"with a mask of {rank} axes is not done")
    batch, _, length, _ = operand_shape(keys)
    count, analyzer = operand_shape(mask)[0], sym.Analyzer()
    has_starts = analyzer.can_prove_equal(count, 2 * batch)
    if not has_starts and not analyzer.can_prove_equal(count, batch):
        raise EqsatError(f"with a mask of length {count} for a batch of {batch} is not done")

    def bias(ends: Any) -> Any:
        def element(b: Any, _h: Any, _i: Any, j: Any) -> Any:
            seen = tirx.all(j < ends(b), j >= ends(b + batch)) if has_starts else j < ends(b)
            return tirx.Select(seen, tirx.const(0.0, "float32"), tirx.const(value, "float32"))

        return te.compute((batch, 1, 1, length), element)

    return op.computed("padding", bias, op.astype(mask, "int64"))


def _quantised_attention(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``QAttention``: data and weights are quantised."""
    x, weight, bias, x_scale, w_scale, mask, x_zero, w_zero, past = inputs[:9]
    sides = [dequantised(op, x, x_scale, x_zero), dequantised(op, weight, w_scale, w_zero)]
    return _attention(op, [*sides, bias, mask, past, None, None], attributes)


def _embedded(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``EmbedLayerNormalization``; the second result counts the words of each sequence by the mask."""
    words, segments, word_rows, place_rows, segment_rows, gamma, beta, mask, places = inputs[:9]
    batch, length = operand_shape(words)
    if places is None:
        places = op.expand_dims(op.arange(0, length, 1, "int64"), 0)
    whole = op.add(op.take(word_rows, words, 0), op.take(place_rows, places, 0))
    if segments is not None:
        whole = op.add(whole, op.take(segment_rows, segments, 0))
    made = op.layer_norm(whole, gamma, beta, axes=[-1], epsilon=float(attributes.get("epsilon", 1e-12)))
    if mask is None:
        counts = op.zeros(relax.ShapeExpr([batch]), "int32")
    else:
        counts = op.sum(op.astype(op.equal(mask, op.number(1, mask)), "int32"), 1)
    return results_of([made, counts, whole], attributes)


MAKERS: Final[dict[str, Maker]] = {
    "Attention": _attention,
    "QAttention": _quantised_attention,
    "EmbedLayerNormalization": _embedded,
}
"""By the names of the ops."""
