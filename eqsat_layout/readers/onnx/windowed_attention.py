"""ONNX's own ``Attention`` over caches of given lengths, and over windows, whose definition holds what is not done.

In: a node's inputs and attributes. Out: its results, in Relax. Other nodes of this op are written in others by ONNX.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.onnx.contrib.attention import split_heads
from eqsat_layout.readers.onnx.contrib.operands import (
    EmittedOps,
    operand_shape,
    refuse_other_results,
    results_of,
    static_extent,
)

_WINDOWS = ("left_window_size", "right_window_size")


def takes(kind: str, inputs: Any, attributes: dict[str, Any]) -> bool:
    """Whether a node is made here."""
    mask, past, _, lengths = [*inputs, *[None] * 7][3:7]
    has_windows = any(attributes.get(name, -1) >= 0 for name in _WINDOWS)
    goes_on = past is not None and (mask is None or bool(attributes.get("is_causal")))
    return kind == "Attention" and (lengths is not None or has_windows or goes_on)


def converted(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """A query that sees no key gives zeros. Computed in float32."""
    op = EmittedOps(builder)
    q, k, v, mask, past_k, past_v, lengths = [*inputs, *[None] * 7][:7]
    refuse_other_results(attributes, 0, 1, 2)
    is_flat, given, dtype = len(operand_shape(q)) == 3, operand_shape(q), str(q.ty.dtype)
    if is_flat:
        heads, groups = int(attributes["q_num_heads"]), int(attributes["kv_num_heads"])
        q, k, v = split_heads(op, q, heads), split_heads(op, k, groups), split_heads(op, v, groups)
    if past_k is not None:
        before = operand_shape(past_k)[2]
        k, v = op.concat([past_k, k], 2), op.concat([past_v, v], 2)
    present = [k, v]
    queries, keys = operand_shape(q)[2], operand_shape(k)[2]
    times = static_extent(q, 1) // static_extent(k, 1)
    k, v = (op.floats(op.repeat(x, times, 1) if times != 1 else x) for x in (k, v))
    scale = float(attributes.get("scale", 0.0)) or 1 / math.sqrt(static_extent(q, 3))
    scores = op.scaled(op.matmul(op.floats(q), op.permute_dims(k, [0, 1, 3, 2])), scale)
    cap = float(attributes.get("softcap", 0.0))
    if cap:
        scores = op.scaled(op.tanh(op.scaled(scores, 1 / cap)), cap)
    scores = op.add(scores, _hidden(op, attributes, lengths, queries, keys, 0 if past_k is None else before))
    if mask is not None:
        scores = op.add(scores, _of_mask(op, mask, keys))
    least, zero = relax.const(np.finfo("float32").min, "float32"), relax.const(0.0, "float32")
    sees_none = op.less_equal(op.max(scores, [-1], keepdims=True), least)
    weights = op.where(sees_none, zero, op.softmax(op.where(sees_none, zero, scores), -1))
    made = op.matmul(weights, v)
    if is_flat:
        width = static_extent(made, 3) * static_extent(made, 1)
        made = op.reshape(op.permute_dims(made, [0, 2, 1, 3]), [given[0], given[1], width])
    return results_of([made if dtype == "float32" else op.astype(made, dtype), *present], attributes)


def _hidden(op: EmittedOps, attributes: dict[str, Any], lengths: Any, queries: Any, keys: Any, before: Any) -> Any:
    """-inf where a key is behind those of its sequence, after the query, or outside of the window around it."""
    left, right = (int(attributes.get(name, -1)) for name in _WINDOWS)
    is_causal = bool(attributes.get("is_causal"))

    def hidden(*own: Any) -> Any:
        def element(b: Any, _h: Any, i: Any, j: Any) -> Any:
            count = own[0](b) if own else keys
            at = i + (count - queries if own else before)
            seen = [j < count]
            seen += [j <= at] if is_causal else []
            seen += [at - j <= left] if left >= 0 else []
            seen += [j - at <= right] if right >= 0 else []
            return tirx.Select(tirx.all(*seen), tirx.const(0.0, "float32"), tirx.const(-math.inf, "float32"))

        return te.compute((own[0].shape[0] if own else 1, 1, queries, keys), element)

    return op.computed("hidden", hidden, *([] if lengths is None else [op.astype(lengths, "int64")]))


def _of_mask(op: EmittedOps, mask: Any, keys: Any) -> Any:
    """As numbers that are added; keys beyond it are hidden."""
    if str(mask.ty.dtype) == "bool":
        mask = op.where(mask, relax.const(0.0, "float32"), relax.const(-math.inf, "float32"))
    own, given = op.floats(mask), operand_shape(mask)
    if isinstance(given[-1], tirx.IntImm) and isinstance(keys, tirx.IntImm):
        more = int(keys) - int(given[-1])
        if more < 0:
            raise EqsatError(f"a mask of {given[-1]} keys where there are {keys} is not done")
        if more:
            hidden = op.full(relax.ShapeExpr([*given[:-1], more]), relax.const(-math.inf, "float32"), "float32")
            own = op.concat([own, hidden], len(given) - 1)
    return own
