"""Layers that torch computes by one kernel of its own in evaluation, and writes in no other ops itself.

In: operands as these ops have them. Out: what they compute, in ordinary ops of torch, for
``ExportedProgram.run_decompositions``.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

_OF_POSITIONS: Final = 0
"""``mask_type`` of a mask of queries and keys; 1 is one of the keys of each sequence, 2 of both and of heads."""
_OF_KEYS: Final = 1


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """``aten.scaled_dot_product_attention`` of queries (..., L, E), keys (..., S, E), values (..., S, F): (..., L, F).

    A query that a mask lets see no key gives zeros. torch's own decomposition looks for such queries in all scores;
    that they are seen in the mask leaves one chain from the scores to the result, which is one kernel here.
    """
    torch = importlib.import_module("torch")
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scores = (query * (query.shape[-1] ** -0.5 if scale is None else scale)) @ key.transpose(-2, -1)
    blind = None
    if is_causal:
        rows, columns = (torch.arange(n, dtype=torch.int32, device=query.device) for n in scores.shape[-2:])
        scores = scores.masked_fill(columns > rows[:, None], float("-inf"))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
        blind = ~attn_mask.any(-1, keepdim=True)
    elif attn_mask is not None:
        scores = scores + attn_mask
        blind = (attn_mask == float("-inf")).all(-1, keepdim=True)
    weights = scores.softmax(-1)
    if dropout_p > 0:
        weights = torch.nn.functional.dropout(weights, dropout_p, True)
    made = weights @ value
    return made if blind is None else made.masked_fill(blind, 0.0)


def encoder_layer(
    src: Any,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Any,
    norm_bias_1: Any,
    norm_weight_2: Any,
    norm_bias_2: Any,
    ffn_weight_1: Any,
    ffn_bias_1: Any,
    ffn_weight_2: Any,
    ffn_bias_2: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Any:
    """``aten._transformer_encoder_layer_fwd``: ``torch.nn.TransformerEncoderLayer``."""
    functional = importlib.import_module("torch.nn.functional")

    def normed(x: Any, weight: Any, bias: Any) -> Any:
        return functional.layer_norm(x, (embed_dim,), weight, bias, eps)

    def attended(x: Any) -> Any:
        return _attention(x, x, x, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, mask_type)[0]

    def fed_forward(x: Any) -> Any:
        wide = functional.linear(x, ffn_weight_1, ffn_bias_1)
        wide = functional.gelu(wide) if use_gelu else functional.relu(wide)
        return functional.linear(wide, ffn_weight_2, ffn_bias_2)

    if norm_first:
        src = src + attended(normed(src, norm_weight_1, norm_bias_1))
        return src + fed_forward(normed(src, norm_weight_2, norm_bias_2))
    src = normed(src + attended(src), norm_weight_1, norm_bias_1)
    return normed(src + fed_forward(src), norm_weight_2, norm_bias_2)


def multi_head_attention(
    query: Any,
    key: Any,
    value: Any,
    embed_dim: int,
    num_head: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    mask: Any = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    """``aten._native_multi_head_attention``: ``torch.nn.MultiheadAttention``, and its weights where they are wanted."""
    made, weights = _attention(
        query, key, value, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, mask_type
    )
    if not need_weights:
        return made, query.new_empty((0,))
    return made, weights.mean(1) if average_attn_weights else weights


def _attention(
    query: Any,
    key: Any,
    value: Any,
    heads: int,
    weight: Any,
    bias: Any,
    out_weight: Any,
    out_bias: Any,
    mask: Any,
    mask_type: int | None,
) -> tuple[Any, Any]:
    """Sequences of shape (batch, length, numbers); the weights are of shape (batch, heads, queries, keys). A mask is
    true where there is nothing to see, whatever type it is of."""
    functional = importlib.import_module("torch.nn.functional")
    operands = zip((query, key, value), weight.chunk(3), bias.chunk(3), strict=True)
    q, k, v = (functional.linear(x, w, b).unflatten(-1, (heads, -1)).transpose(1, 2) for x, w, b in operands)
    products = (q / q.shape[-1] ** 0.5) @ k.transpose(-2, -1)
    if mask is not None:
        hidden = mask.bool()
        if mask_type == _OF_POSITIONS:
            hidden = hidden[None, None]
        elif mask_type == _OF_KEYS:
            hidden = hidden[:, None, None]
        products = products.masked_fill(hidden, float("-inf"))
    weights = products.softmax(-1)
    return functional.linear((weights @ v).transpose(1, 2).flatten(-2), out_weight, out_bias), weights
