"""Attention with a cache of keys and values and rotary embeddings.

In: a node's inputs and attributes. Out: its results, in Relax.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

from tvm import relax, te, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.onnx.contrib.operands import (
    EmittedOps,
    Maker,
    operand_shape,
    refuse_operand,
    results_of,
    static_extent,
)


def _rotated(
    op: EmittedOps, x: Any, cos: Any, sin: Any, positions: Any, *, interleaved: bool, count: int = 0, scale: float = 1.0
) -> Any:
    """Rotary embedding of the first ``count`` elements of each head (0: as many as the tables have), times ``scale``.

    ``x``: (batch, length, heads, size); ``positions``: (batch, length), the rows of the tables ``cos`` and ``sin``.
    ``interleaved``: pairs are neighbours, not elements of the two halves.
    """
    size = static_extent(x, 3)
    turns = count or 2 * static_extent(cos, 1)
    c, s = (op.expand_dims(op.take(table, positions, 0), 2) for table in (cos, sin))
    own = op.strided_slice(x, [3], [0], [turns]) if turns != size else x
    own = op.scaled(own, scale)
    if interleaved:
        one, other = (op.strided_slice(own, [3], [i], [turns], [2]) for i in (0, 1))
    else:
        halves = ((0, turns // 2), (turns // 2, turns))
        one, other = (op.strided_slice(own, [3], [begin], [end]) for begin, end in halves)
    real = op.subtract(op.multiply(one, c), op.multiply(other, s))
    imaginary = op.add(op.multiply(one, s), op.multiply(other, c))
    if interleaved:
        made = op.reshape(op.stack([real, imaginary], 4), [*operand_shape(own)])
    else:
        made = op.concat([real, imaginary], 3)
    return made if turns == size else op.concat([made, op.strided_slice(x, [3], [turns], [size])], 3)


def _rotary_embedding(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``RotaryEmbedding`` of (batch, length, heads * size) or (batch, heads, length, size)."""
    x, positions, cos, sin = inputs[:4]
    if attributes.get("is_packed_batching"):
        raise EqsatError("with is_packed_batching is not done")
    count, heads = int(attributes.get("rotary_embedding_dim", 0)), int(attributes.get("num_heads", 0))
    is_flat, given = len(operand_shape(x)) == 3, operand_shape(x)
    if is_flat:
        size = static_extent(x, 2) // heads if heads else 2 * static_extent(cos, 1)
        x = op.reshape(x, [given[0], given[1], static_extent(x, 2) // size, size])
    else:
        x = op.permute_dims(x, [0, 2, 1, 3])
    if len(operand_shape(positions)) == 1:  # where the first one is
        steps = op.arange(0, operand_shape(x)[1], 1, "int64")
        positions = op.broadcast_to(op.add(op.astype(positions, "int64"), steps), [given[0], operand_shape(x)[1]])
    made = _rotated(
        op,
        x,
        cos,
        sin,
        positions,
        interleaved=bool(attributes.get("interleaved")),
        count=count,
        scale=float(attributes.get("scale", 1.0)),
    )
    return op.reshape(made, given) if is_flat else op.permute_dims(made, [0, 2, 1, 3])


def make_attention(op: EmittedOps, q: Any, k: Any, v: Any, attributes: dict[str, Any], biases: Sequence[Any]) -> Any:
    """``softmax(q k^T * scale + biases) v``: from (batch, heads, length, size) to (batch, length, heads * size)."""
    size, dtype = static_extent(q, 3), str(q.ty.dtype)
    scale = float(attributes.get("scale", 0.0)) or 1 / math.sqrt(size)
    scores = op.scaled(op.matmul(q, op.permute_dims(k, [0, 1, 3, 2])), scale)
    cap = float(attributes.get("softcap", 0.0))
    if cap:
        scores = op.scaled(op.tanh(op.scaled(scores, 1 / cap)), cap)
    for bias in biases:
        scores = op.add(scores, bias if str(bias.ty.dtype) == dtype else op.astype(bias, dtype))
    made = op.permute_dims(op.matmul(op.softmax(scores, -1), v), [0, 2, 1, 3])
    batch, length, heads, width = operand_shape(made)
    return op.reshape(made, [batch, length, int(heads) * int(width)])


def split_heads(op: EmittedOps, x: Any, heads: int) -> Any:
    """From (batch, length, heads * size) to (batch, heads, length, size)."""
    batch, length, _ = operand_shape(x)
    width = static_extent(x, 2)
    return op.permute_dims(op.reshape(x, [batch, length, heads, width // heads]), [0, 2, 1, 3])


def _multi_head_attention(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``MultiHeadAttention``."""
    q, k, v, bias, padding, more, past_k, past_v = inputs[:8]
    heads = int(attributes["num_heads"])
    if k is None or v is None or len(operand_shape(q)) != 3:
        raise EqsatError("with packed operands is not done")
    for place in (8, 9):
        refuse_operand(inputs[place], "a cache of its own lengths")
    parts, at = [], 0
    for x in (q, k, v):
        if len(operand_shape(x)) == 3:
            width = static_extent(x, 2)
            if bias is not None:
                x = op.add(x, op.strided_slice(bias, [0], [at], [at + width]))
            at += width
            x = split_heads(op, x, heads)
        parts.append(x)
    q, k, v = parts
    if past_k is not None:
        k, v = op.concat([past_k, k], 2), op.concat([past_v, v], 2)
    biases = [] if more is None else [more]
    if padding is not None:
        biases.append(padding_bias(op, padding, float(attributes.get("mask_filter_value", -10000.0))))
    if attributes.get("unidirectional"):
        biases.append(causal_bias(op, q, k))
    return results_of([make_attention(op, q, k, v, attributes, biases), k, v], attributes)


def padding_bias(op: EmittedOps, padding: Any, value: float) -> Any:
    """``value`` where the mask, (batch, keys) or (batch, queries, keys), is 0; it is added to the scores."""
    rank = len(operand_shape(padding))
    if rank not in (2, 3):
        raise EqsatError(f"with a mask of keys of {rank} axes is not done")
    seen = op.not_equal(padding, op.number(0, padding))
    bias = op.where(seen, relax.const(0.0, "float32"), relax.const(value, "float32"))
    return op.expand_dims(bias, [1, 2] if rank == 2 else [1])


def causal_bias(op: EmittedOps, q: Any, k: Any) -> Any:
    """The lowest float32 for keys after the query; the last query and the last key have the same position."""
    queries, keys = operand_shape(q)[2], operand_shape(k)[2]
    return op.computed(
        "causal",
        lambda: te.compute(
            (1, 1, queries, keys),
            lambda _a, _b, i, j: tirx.Select(
                j <= i + keys - queries, tirx.const(0.0, "float32"), tirx.min_value("float32")
            ),
        ),
    )


def _group_query(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``GroupQueryAttention``: each sequence of the batch has its own number of past keys and values.

    The resulting caches have room for the whole past and the new keys and values.
    """
    q, k, v, past_k, past_v, lengths = inputs[:6]
    cos, sin, positions, bias = inputs[7:11]
    for place, what in ((11, "head_sink"), (12, "k_scale")):
        refuse_operand(inputs[place], what)
    if attributes.get("smooth_softmax") in (1, True) or attributes.get("qk_output"):
        raise EqsatError("with smooth_softmax or qk_output is not done")
    heads, groups = int(attributes["num_heads"]), int(attributes["kv_num_heads"])
    if k is None:
        size = static_extent(q, 2) // (heads + 2 * groups)
        ends = [0, heads * size, (heads + groups) * size, (heads + 2 * groups) * size]
        q, k, v = (op.strided_slice(q, [2], [a], [b]) for a, b in itertools.pairwise(ends))
    batch, length, _ = operand_shape(q)
    new = op.shape_to_tensor(relax.ShapeExpr([length]))
    whole = op.add(op.reshape(op.astype(lengths, "int64"), [batch]), relax.const(1, "int64"))
    before = op.maximum(op.subtract(whole, new), relax.const(0, "int64"))
    if attributes.get("do_rotary"):
        if positions is None:
            positions = op.add(op.expand_dims(before, 1), op.expand_dims(op.arange(0, length, 1, "int64"), 0))
        turned = []
        for x, count in ((q, heads), (k, groups)):
            wide = op.reshape(x, [batch, length, count, static_extent(x, 2) // count])
            made = _rotated(op, wide, cos, sin, positions, interleaved=bool(attributes.get("rotary_interleaved")))
            turned.append(op.reshape(made, [batch, length, static_extent(x, 2)]))
        q, k = turned
    q, k, v = split_heads(op, q, heads), split_heads(op, k, groups), split_heads(op, v, groups)
    if past_k is not None:
        k, v = (_with_past(op, past, now, before) for past, now in ((past_k, k), (past_v, v)))
    keys = operand_shape(k)[2]
    window = int(attributes.get("local_window_size", -1))

    def mask(own: Any) -> Any:
        def hidden(b: Any, _h: Any, i: Any, j: Any) -> Any:
            last = own(b) + i
            seen = tirx.all(j <= last, j > last - window) if window > 0 else j <= last
            return tirx.Select(seen, tirx.const(0.0, "float32"), tirx.min_value("float32"))

        return te.compute((batch, 1, length, keys), hidden)

    biases = [op.computed("seen", mask, before)]
    if bias is not None:
        biases.append(bias)
    each_k, each_v = (op.repeat(x, heads // groups, 1) if heads != groups else x for x in (k, v))
    return results_of([make_attention(op, q, each_k, each_v, attributes, biases), k, v], attributes)


def _with_past(op: EmittedOps, past: Any, now: Any, before: Any) -> Any:
    """The cache: for each sequence its past, ``before`` elements long, then what is new."""
    batch, heads, length, size = operand_shape(now)
    whole = operand_shape(past)[2] + length

    def joined(old: Any, new: Any, own: Any) -> Any:
        def element(b: Any, h: Any, t: Any, d: Any) -> Any:
            at = tirx.max(tirx.min(t - own(b), length - 1), 0)
            return tirx.if_then_else(tirx.all(t < own(b), t < old.shape[2]), old(b, h, t, d), new(b, h, at, d))

        return te.compute((batch, heads, whole, size), element)

    return op.computed("cache", joined, past, now, before)


MAKERS: Final[dict[str, Maker]] = {
    "RotaryEmbedding": _rotary_embedding,
    "MultiHeadAttention": _multi_head_attention,
    "GroupQueryAttention": _group_query,
}
"""By the names of the ops."""
