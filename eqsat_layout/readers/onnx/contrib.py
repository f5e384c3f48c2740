"""Ops of ``com.microsoft``, as ONNX Runtime's optimisers, quantisers and model builders write them.

In: a node's inputs and attributes. Out: its results, in Relax; :class:`EqsatError` for what is not done. What they
compute is said in ONNX Runtime's ``ContribOperators.md``. Ops of that domain that are ONNX's own by another version, or
that TVM's frontend converts, are not here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from tvm import ir, relax, te, tirx

from eqsat_layout.errors import EqsatError

_DOMAIN: Final = "com.microsoft"


def name_of(node: Any) -> str:
    """The op of a node: those made here by domain and name, since ONNX has others of the same name."""
    is_own = node.op_type in _MAKERS and (node.domain == _DOMAIN or node.op_type in _WITHOUT_DOMAIN)
    return f"{_DOMAIN}.{node.op_type}" if is_own else str(node.op_type)


def takes(kind: str) -> bool:
    """Whether nodes of this op, as :func:`name_of` calls it, are made here."""
    return kind.startswith(f"{_DOMAIN}.")


def converted(builder: relax.BlockBuilder, kind: str, inputs: Any, attributes: dict[str, Any]) -> Any:
    """The results of a node."""
    own = {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}
    return _MAKERS[kind.removeprefix(f"{_DOMAIN}.")](_Ops(builder), [*inputs, *[None] * 12], own)


class _Ops:
    """Relax ops that are emitted."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.builder = builder

    def __getattr__(self, name: str) -> Callable[..., Any]:
        op = getattr(relax.op.nn if name in _OF_LAYERS else relax.op, name)
        return lambda *given, **named: self.builder.emit(op(*given, **named))

    def number(self, value: float, like: Any) -> Any:
        return relax.const(value, str(like.ty.dtype))

    def floats(self, value: Any) -> Any:
        return value if str(value.ty.dtype) == "float32" else self.astype(value, "float32")

    def like(self, value: Any, other: Any) -> Any:
        dtype = str(other.ty.dtype)
        return value if str(value.ty.dtype) == dtype else self.astype(value, dtype)

    def scaled(self, value: Any, by: float) -> Any:
        return value if by == 1 else self.multiply(value, self.number(by, value))

    def computed(self, name: str, compute: Callable[..., Any], *operands: Any) -> Any:
        return self.builder.emit_te(compute, *operands, primfunc_name_hint=name)


_OF_LAYERS: Final = ("softmax", "relu", "gelu", "leakyrelu", "layer_norm", "avg_pool2d")


def _shape(value: Any) -> list[Any]:
    return list(value.ty.shape.values)


def _extent(value: Any, axis: int) -> int:
    extent = _shape(value)[axis]
    if not isinstance(extent, tirx.IntImm):
        raise EqsatError(f"an operand of which axis {axis} is of unknown size is not done")
    return int(extent)


def _none(given: Any, what: str) -> None:
    if given is not None:
        raise EqsatError(f"with {what} is not done")


def _array(value: Any, what: str) -> np.ndarray[Any, Any]:
    if not isinstance(value, ir.GenericConst):
        raise EqsatError(f"with {what} that are no constants is not done")
    return np.asarray(value.value.numpy())


def _results(made: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """As many as are asked for; those that are left out between them are None."""
    wanted = attributes["tvm_custom"]["num_outputs"]
    if wanted == 1:
        return made[0]
    if len(made) < wanted:
        raise EqsatError(f"with {wanted} results is not done")
    return relax.Tuple([made[0] if one is None else one for one in made[:wanted]])


# Norms


def _rms(op: _Ops, x: Any, scale: Any, attributes: dict[str, Any]) -> Any:
    """In float32, as ONNX Runtime does."""
    axes = list(range(int(attributes.get("axis", -1)) % len(_shape(x)), len(_shape(x))))
    wide = op.floats(x)
    mean = op.mean(op.multiply(wide, wide), axes, keepdims=True)
    made = op.multiply(wide, op.rsqrt(op.add(mean, relax.const(float(attributes.get("epsilon", 1e-5)), "float32"))))
    return op.multiply(op.like(made, scale), scale)


def _simplified(op: _Ops, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    return _results([_rms(op, inputs[0], inputs[1], attributes)], attributes)


def _skipped(is_simplified: bool) -> Callable[..., Any]:
    def make(op: _Ops, inputs: list[Any], attributes: dict[str, Any]) -> Any:
        x, skip, gamma = inputs[:3]
        beta, bias = (None, inputs[3]) if is_simplified else inputs[3:5]
        whole = op.add(x, skip)
        if bias is not None:
            whole = op.add(whole, bias)
        if is_simplified:
            made = _rms(op, whole, gamma, attributes)
        else:
            beta = op.zeros(gamma.ty.shape, str(gamma.ty.dtype)) if beta is None else beta
            made = op.layer_norm(whole, gamma, beta, axes=[-1], epsilon=float(attributes.get("epsilon", 1e-12)))
        _only(attributes, 0, 3)
        return _results([made, None, None, whole], attributes)

    return make


def _only(attributes: dict[str, Any], *places: int) -> None:
    """:class:`EqsatError` where other results than those at ``places`` are asked for by name."""
    names = attributes["tvm_custom"].get("outputs", ())
    asked = [at for at, name in enumerate(names) if name and at not in places]
    if asked:
        raise EqsatError(f"with result {asked[0]} is not done")


# Products and activations


def _activation(op: _Ops, x: Any, attributes: dict[str, Any]) -> Any:
    name = attributes.get("activation", "")
    params = [float(one) for one in attributes.get("activation_params", ())]
    if name == "LeakyRelu":
        return op.leakyrelu(x, params[0] if params else 0.01)
    if name == "Clip":
        return op.clip(x, *params)
    if name == "HardSigmoid":
        alpha, beta = params or (0.2, 0.5)
        return op.clip(op.add(op.scaled(x, alpha), op.number(beta, x)), 0, 1)
    if name not in ("", "Relu", "Tanh", "Sigmoid"):
        raise EqsatError(f"with activation={name} is not done")
    return getattr(op, name.lower())(x) if name else x


def _turned(op: _Ops, x: Any) -> Any:
    rank = len(_shape(x))
    return op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])


def _product(op: _Ops, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``FusedMatMul``."""
    if attributes.get("transBatchA") or attributes.get("transBatchB"):
        raise EqsatError("with transBatchA or transBatchB is not done")
    sides = [_turned(op, x) if attributes.get(f"trans{s}") else x for x, s in zip(inputs[:2], "AB", strict=True)]
    return op.scaled(op.matmul(*sides), float(attributes.get("alpha", 1.0)))


def _gemm(op: _Ops, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``FusedGemm``."""
    made = _product(op, inputs, attributes)
    if inputs[2] is not None:
        made = op.add(made, op.scaled(inputs[2], float(attributes.get("beta", 1.0))))
    params = {name: float(attributes[f"activation_{name}"]) for name in ("alpha", "beta", "gamma")
              if f"activation_{name}" in attributes}  # fmt: skip
    return _activation(op, made, attributes | {"activation_params": list(params.values())})


def _convolution(op: _Ops, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``FusedConv``."""
    x, w, bias, more = inputs[:4]
    axes = len(_shape(x)) - 2
    ones = [1] * axes
    if attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise EqsatError(f"with auto_pad={attributes['auto_pad']} is not done")
    made = getattr(relax.op.nn, f"conv{axes}d")(
        x,
        w,
        strides=list(attributes.get("strides", ones)),
        padding=list(attributes.get("pads", [0] * 2 * axes)),
        dilation=list(attributes.get("dilations", ones)),
        groups=int(attributes.get("group", 1)),
    )
    made = op.builder.emit(made)
    if bias is not None:
        made = op.add(made, op.reshape(bias, [1, -1, *ones]))
    if more is not None:
        made = op.add(made, more)
    return _activation(op, made, attributes)


def _quick_gelu(op: _Ops, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    return op.multiply(inputs[0], op.sigmoid(op.scaled(inputs[0], float(attributes.get("alpha", 1.702)))))


def _product_of_few_bits(op: _Ops, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``MatMulNBits``: weights of 2, 4 or 8 bits, a scale and a zero for each block of a row, the lowest bits first."""
    x, bias = inputs[0], inputs[5]
    _none(inputs[4], "g_idx")
    rows, columns, bits, block = (int(attributes[name]) for name in ("N", "K", "bits", "block_size"))
    if bits not in (2, 4, 8):
        raise EqsatError(f"with bits={bits} is not done")
    blocks = -(-columns // block)
    scales = _array(inputs[2], "scales").astype("float32").reshape(rows, blocks, 1)
    numbers = _unpacked(_array(inputs[1], "weights").reshape(rows, -1), bits)[:, : blocks * block]
    zeros: Any = float(1 << (bits - 1))
    if inputs[3] is not None:
        given = _array(inputs[3], "zeros").reshape(rows, -1)
        own = _unpacked(given, bits) if given.dtype == np.uint8 else given
        zeros = own[:, :blocks].astype("float32").reshape(rows, blocks, 1)
    weights = ((numbers.reshape(rows, blocks, block).astype("float32") - zeros) * scales).reshape(rows, -1)
    made = op.matmul(x, relax.const(weights[:, :columns].T.astype(str(x.ty.dtype))))
    return made if bias is None else op.add(made, bias)


def _unpacked(packed: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    parts = [(packed >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(packed.shape[0], -1)


# Attention


def _rotated(
    op: _Ops, x: Any, cos: Any, sin: Any, positions: Any, *, interleaved: bool, count: int = 0, scale: float = 1.0
) -> Any:
    """``x`` of shape (batch, length, heads, numbers), the first ``count`` numbers turned by the rows of the tables at
    ``positions``, of shape (batch, length)."""
    size = _extent(x, 3)
    turns = count or 2 * _extent(cos, 1)
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
        made = op.reshape(op.stack([real, imaginary], 4), [*_shape(own)])
    else:
        made = op.concat([real, imaginary], 3)
    return made if turns == size else op.concat([made, op.strided_slice(x, [3], [turns], [size])], 3)


def _rotary(op: _Ops, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``RotaryEmbedding``: of (batch, length, heads * numbers) or (batch, heads, length, numbers)."""
    x, positions, cos, sin = inputs[:4]
    if attributes.get("is_packed_batching"):
        raise EqsatError("with is_packed_batching is not done")
    count, heads = int(attributes.get("rotary_embedding_dim", 0)), int(attributes.get("num_heads", 0))
    is_flat, given = len(_shape(x)) == 3, _shape(x)
    if is_flat:
        size = _extent(x, 2) // heads if heads else 2 * _extent(cos, 1)
        x = op.reshape(x, [given[0], given[1], _extent(x, 2) // size, size])
    else:
        x = op.permute_dims(x, [0, 2, 1, 3])
    if len(_shape(positions)) == 1:  # where the first one is
        steps = op.arange(0, _shape(x)[1], 1, "int64")
        positions = op.broadcast_to(op.add(op.astype(positions, "int64"), steps), [given[0], _shape(x)[1]])
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


def _attended(op: _Ops, q: Any, k: Any, v: Any, attributes: dict[str, Any], biases: Sequence[Any]) -> Any:
    """Of shape (batch, length, heads * numbers), from what is of shape (batch, heads, length, numbers)."""
    size, dtype = _extent(q, 3), str(q.ty.dtype)
    scale = float(attributes.get("scale", 0.0)) or 1 / math.sqrt(size)
    scores = op.scaled(op.matmul(q, op.permute_dims(k, [0, 1, 3, 2])), scale)
    cap = float(attributes.get("softcap", 0.0))
    if cap:
        scores = op.scaled(op.tanh(op.scaled(scores, 1 / cap)), cap)
    for bias in biases:
        scores = op.add(scores, bias if str(bias.ty.dtype) == dtype else op.astype(bias, dtype))
    made = op.permute_dims(op.matmul(op.softmax(scores, -1), v), [0, 2, 1, 3])
    batch, length, heads, width = _shape(made)
    return op.reshape(made, [batch, length, int(heads) * int(width)])


def _by_heads(op: _Ops, x: Any, heads: int) -> Any:
    batch, length, _ = _shape(x)
    width = _extent(x, 2)
    return op.permute_dims(op.reshape(x, [batch, length, heads, width // heads]), [0, 2, 1, 3])


def _multi_head(op: _Ops, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``MultiHeadAttention``."""
    q, k, v, bias, padding, more, past_k, past_v = inputs[:8]
    heads = int(attributes["num_heads"])
    if k is None or v is None or len(_shape(q)) != 3:
        raise EqsatError("with packed operands is not done")
    for place in (8, 9):
        _none(inputs[place], "a cache of its own lengths")
    parts, at = [], 0
    for x in (q, k, v):
        if len(_shape(x)) == 3:
            width = _extent(x, 2)
            if bias is not None:
                x = op.add(x, op.strided_slice(bias, [0], [at], [at + width]))
            at += width
            x = _by_heads(op, x, heads)
        parts.append(x)
    q, k, v = parts
    if past_k is not None:
        k, v = op.concat([past_k, k], 2), op.concat([past_v, v], 2)
    biases = [] if more is None else [more]
    if padding is not None:
        biases.append(_of_padding(op, padding, float(attributes.get("mask_filter_value", -10000.0))))
    if attributes.get("unidirectional"):
        biases.append(_of_order(op, q, k))
    return _results([_attended(op, q, k, v, attributes, biases), k, v], attributes)


def _of_padding(op: _Ops, padding: Any, value: float) -> Any:
    """From a mask of the keys of each sequence, of shape (batch, keys)."""
    if len(_shape(padding)) != 2:
        raise EqsatError(f"with a key_padding_mask of {len(_shape(padding))} axes is not done")
    seen = op.not_equal(padding, op.number(0, padding))
    bias = op.where(seen, relax.const(0.0, "float32"), relax.const(value, "float32"))
    return op.expand_dims(bias, [1, 2])


def _of_order(op: _Ops, q: Any, k: Any) -> Any:
    """That hides keys after the query, where the last of both are at the same place."""
    queries, keys = _shape(q)[2], _shape(k)[2]
    return op.computed(
        "causal",
        lambda: te.compute(
            (1, 1, queries, keys),
            lambda _a, _b, i, j: tirx.Select(
                j <= i + keys - queries, tirx.const(0.0, "float32"), tirx.min_value("float32")
            ),
        ),
    )


def _grouped(op: _Ops, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``GroupQueryAttention``: the keys and values of the past before those of now, of each sequence as many as it has.
    Each result of keys and values has room for all of the past and now."""
    q, k, v, past_k, past_v, lengths = inputs[:6]
    cos, sin, positions, bias = inputs[7:11]
    for place, what in ((11, "head_sink"), (12, "k_scale")):
        _none(inputs[place], what)
    if attributes.get("smooth_softmax") in (1, True) or attributes.get("qk_output"):
        raise EqsatError("with smooth_softmax or qk_output is not done")
    heads, groups = int(attributes["num_heads"]), int(attributes["kv_num_heads"])
    if k is None:
        size = _extent(q, 2) // (heads + 2 * groups)
        ends = [0, heads * size, (heads + groups) * size, (heads + 2 * groups) * size]
        q, k, v = (op.strided_slice(q, [2], [a], [b]) for a, b in itertools.pairwise(ends))
    batch, length, _ = _shape(q)
    new = op.shape_to_tensor(relax.ShapeExpr([length]))
    whole = op.add(op.reshape(op.astype(lengths, "int64"), [batch]), relax.const(1, "int64"))
    before = op.maximum(op.subtract(whole, new), relax.const(0, "int64"))
    if attributes.get("do_rotary"):
        if positions is None:
            positions = op.add(op.expand_dims(before, 1), op.expand_dims(op.arange(0, length, 1, "int64"), 0))
        turned = []
        for x, count in ((q, heads), (k, groups)):
            wide = op.reshape(x, [batch, length, count, _extent(x, 2) // count])
            made = _rotated(op, wide, cos, sin, positions, interleaved=bool(attributes.get("rotary_interleaved")))
            turned.append(op.reshape(made, [batch, length, _extent(x, 2)]))
        q, k = turned
    q, k, v = _by_heads(op, q, heads), _by_heads(op, k, groups), _by_heads(op, v, groups)
    if past_k is not None:
        k, v = (_joined(op, past, now, before) for past, now in ((past_k, k), (past_v, v)))
    keys = _shape(k)[2]
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
    return _results([_attended(op, q, each_k, each_v, attributes, biases), k, v], attributes)


def _joined(op: _Ops, past: Any, now: Any, before: Any) -> Any:
    """Of each sequence what it has of the past, and after that what is new."""
    batch, heads, length, size = _shape(now)
    whole = _shape(past)[2] + length

    def joined(old: Any, new: Any, own: Any) -> Any:
        def element(b: Any, h: Any, t: Any, d: Any) -> Any:
            at = tirx.max(tirx.min(t - own(b), length - 1), 0)
            return tirx.if_then_else(tirx.all(t < own(b), t < old.shape[2]), old(b, h, t, d), new(b, h, at, d))

        return te.compute((batch, heads, whole, size), element)

    return op.computed("cache", joined, past, now, before)


# Whole numbers with scales


def _real(op: _Ops, x: Any, scale: Any, zero: Any) -> Any:
    wide = op.floats(x)
    if zero is not None:
        wide = op.subtract(wide, op.floats(zero))
    return op.multiply(wide, scale)


def _whole(op: _Ops, value: Any, scale: Any, zero: Any, like: Any = None) -> Any:
    """To the nearest, even where two are, in the range of the type of ``zero``."""
    dtype = str((like if zero is None else zero).ty.dtype)
    if dtype not in _RANGES:
        raise EqsatError(f"a result of {dtype} is not done")
    moved = op.round(op.divide(value, scale))
    if zero is not None:
        moved = op.add(moved, op.floats(zero))
    return op.astype(op.clip(moved, *_RANGES[dtype]), dtype)


_RANGES: Final = {"int8": (-128, 127), "uint8": (0, 255)}


def _of_reals(function: Callable[[_Ops, list[Any], dict[str, Any]], Any], count: int) -> Callable[..., Any]:
    """An op of numbers that scales and zeros stand for: ``count`` triples, and of the result a scale and a zero."""

    def make(op: _Ops, inputs: list[Any], attributes: dict[str, Any]) -> Any:
        given = [_real(op, *inputs[3 * i : 3 * i + 3]) for i in range(count)]
        made = function(op, given, attributes)
        return _whole(op, made, inputs[3 * count], inputs[3 * count + 1], inputs[0])

    return make


def _joined_whole(op: _Ops, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``QLinearConcat``: the scale and zero of the result come first."""
    rest = [one for one in inputs[2:] if one is not None]
    given = [_real(op, *rest[i : i + 3]) for i in range(0, len(rest), 3)]
    return _whole(op, op.concat(given, int(attributes["axis"])), inputs[0], inputs[1])


def _mean(op: _Ops, given: list[Any], attributes: dict[str, Any]) -> Any:
    axes = len(_shape(given[0])) - 2
    if attributes.get("channels_last"):
        return op.mean(given[0], list(range(1, 1 + axes)), keepdims=True)
    return op.mean(given[0], list(range(2, 2 + axes)), keepdims=True)


def _whole_gemm(op: _Ops, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``QGemm``: sums of whole numbers, exact in float32 as far as they are below 2^24."""
    a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = inputs[:9]
    sides = []
    for x, zero, turns in ((a, a_zero, "transA"), (b, b_zero, "transB")):
        wide = _turned(op, op.floats(x)) if attributes.get(turns) else op.floats(x)
        sides.append(op.subtract(wide, op.floats(zero)))
    sums = op.matmul(*sides)
    if c is not None:
        sums = op.add(sums, op.floats(c))
    factor = op.scaled(op.multiply(a_scale, b_scale), float(attributes.get("alpha", 1.0)))
    if y_scale is None:
        return op.multiply(sums, factor)
    return _whole(op, op.multiply(sums, op.divide(factor, y_scale)), relax.const(1.0, "float32"), y_zero)


def _product_to_floats(op: _Ops, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``MatMulIntegerToFloat``."""
    a, b, a_scale, b_scale, a_zero, b_zero, bias = inputs[:7]
    sides = [
        op.floats(x) if zero is None else op.subtract(op.floats(x), op.floats(zero))
        for x, zero in ((a, a_zero), (b, b_zero))
    ]
    made = op.multiply(op.matmul(*sides), op.multiply(a_scale, b_scale))
    return made if bias is None else op.add(made, bias)


_MAKERS: Final[dict[str, Callable[[_Ops, list[Any], dict[str, Any]], Any]]] = {
    "SimplifiedLayerNormalization": _simplified,
    "SkipLayerNormalization": _skipped(is_simplified=False),
    "SkipSimplifiedLayerNormalization": _skipped(is_simplified=True),
    "FusedMatMul": _product,
    "FusedGemm": _gemm,
    "FusedConv": _convolution,
    "QuickGelu": _quick_gelu,
    "MatMulNBits": _product_of_few_bits,
    "RotaryEmbedding": _rotary,
    "MultiHeadAttention": _multi_head,
    "GroupQueryAttention": _grouped,
    "QLinearAdd": _of_reals(lambda op, given, _: op.add(*given), 2),
    "QLinearMul": _of_reals(lambda op, given, _: op.multiply(*given), 2),
    "QLinearSigmoid": _of_reals(lambda op, given, _: op.sigmoid(*given), 1),
    "QLinearLeakyRelu": _of_reals(lambda op, given, a: op.leakyrelu(given[0], float(a.get("alpha", 0.01))), 1),
    "QLinearSoftmax": _of_reals(lambda op, given, a: op.softmax(given[0], int(a.get("axis", -1))), 1),
    "QLinearGlobalAveragePool": _of_reals(_mean, 1),
    "QLinearConcat": _joined_whole,
    "QGemm": _whole_gemm,
    "MatMulIntegerToFloat": _product_to_floats,
}
"""By the names of the ops."""

_WITHOUT_DOMAIN: Final = ("SimplifiedLayerNormalization",)
"""That ONNX Runtime has in ONNX's own domain, where ONNX knows none of that name."""
