"""A torch network as a function of JAX: what ``torch.export`` wrote down, op by op.

In: a network and its sample, in whatever precision. Out: a function of JAX arrays and its arguments, for ``jax.jit``.
An op that has no line here is named by a ``NotImplementedError``. JAX lays tensors out as it likes: what torch has as
NCHW is said to be so, and XLA changes that.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

_LETTERS: Final = "DHW"


def function_of(torch: Any, network: Any, sample: Sequence[Any]) -> tuple[Callable[..., Any], list[Any]]:
    """The function, and what it is called with: parameters first, then the sample."""
    program = torch.export.export(network, tuple(sample))
    tensors = {**program.state_dict, **program.constants}
    given = iter(sample)
    values = []
    for one in program.graph_signature.input_specs:
        values.append(tensors[one.target] if one.target is not None else next(given))
    outputs = [one.arg.name for one in program.graph_signature.output_specs]

    def run(*arguments: Any) -> Any:
        known: dict[str, Any] = {}
        places = iter(arguments)
        for node in program.graph.nodes:
            if node.op == "placeholder":
                known[node.name] = next(places)
            elif node.op == "call_function":
                known[node.name] = _called(torch, node, known)
        return [known[name] for name in outputs]

    return run, [_array(torch, value) for value in values]


def _array(torch: Any, tensor: Any) -> Any:
    dtype = jnp.dtype(str(tensor.dtype).removeprefix("torch."))
    whole = tensor.detach().cpu()
    return jnp.asarray((whole.float() if whole.is_floating_point() else whole).numpy(), dtype)


def _called(torch: Any, node: Any, known: Any) -> Any:
    name = node.target.__name__.split(".")[0]
    if name not in _OPS:
        raise NotImplementedError(f"{node.target} has no line in bundles/jax_networks.py")

    def value(one: Any) -> Any:
        if isinstance(one, torch.fx.Node):
            return known[one.name]
        if isinstance(one, list | tuple):
            return [value(each) for each in one]
        return jnp.dtype(str(one).removeprefix("torch.")) if isinstance(one, torch.dtype) else one

    named = {key: value(one) for key, one in node.kwargs.items() if key not in _LEFT_OUT}
    return _OPS[name](*map(value, node.args), **named)


_LEFT_OUT: Final = ("layout", "device", "pin_memory", "memory_format", "non_blocking", "copy")


def _conv(x: Any, w: Any, b: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Any:
    rank = x.ndim - 2
    strides, pads, holes = (_each(one, rank) for one in (stride, padding, dilation))
    letters = _LETTERS[-rank:]
    y = jax.lax.conv_general_dilated(
        x,
        w,
        strides,
        [(pad, pad) for pad in pads],
        rhs_dilation=holes,
        dimension_numbers=(f"NC{letters}", f"OI{letters}", f"NC{letters}"),
        feature_group_count=groups,
    )
    return y if b is None else y + b.reshape(-1, *[1] * rank)


def _each(value: Any, rank: int) -> list[int]:
    values = list(value) if isinstance(value, list | tuple) else [value]
    return values * rank if len(values) == 1 else values


def _conv_transpose(x: Any, w: Any, b: Any = None, stride: Any = 1, padding: Any = 0, more: Any = 0, *_: Any) -> Any:
    rank = x.ndim - 2
    strides, pads, others = (_each(one, rank) for one in (stride, padding, more))
    letters = _LETTERS[-rank:]
    ends = [
        (size - 1 - pad, size - 1 - pad + other) for size, pad, other in zip(w.shape[2:], pads, others, strict=True)
    ]
    y = jax.lax.conv_general_dilated(
        x,
        jnp.flip(w, range(2, w.ndim)),
        [1] * rank,
        ends,
        lhs_dilation=strides,
        dimension_numbers=(f"NC{letters}", f"IO{letters}", f"NC{letters}"),
    )
    return y if b is None else y + b.reshape(-1, *[1] * rank)


def _batch_norm(x: Any, w: Any, b: Any, mean: Any, var: Any, *rest: Any) -> Any:
    epsilon = next(one for one in reversed(rest) if isinstance(one, float))
    shape = (1, -1, *[1] * (x.ndim - 2))
    scale = w * jax.lax.rsqrt(var + epsilon)
    return x * scale.reshape(shape) + (b - mean * scale).reshape(shape)


def _layer_norm(x: Any, shape: Any, w: Any = None, b: Any = None, epsilon: float = 1e-5, *_: Any) -> Any:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    y = (x - x.mean(axes, keepdims=True)) * jax.lax.rsqrt(x.var(axes, keepdims=True) + epsilon)
    y = y if w is None else y * w
    return y if b is None else y + b


def _max_pool(x: Any, window: Any, stride: Any = (), padding: Any = 0, *_: Any) -> Any:
    rank = x.ndim - 2
    sizes = _each(window, rank)
    strides, pads = _each(stride, rank) if stride else sizes, _each(padding, rank)
    ends = [(0, 0), (0, 0), *((pad, pad) for pad in pads)]
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, *sizes), (1, 1, *strides), ends)


def _mean_pool(x: Any, size: Any) -> Any:
    if any(one != 1 for one in _each(size, x.ndim - 2)):
        raise NotImplementedError("adaptive pooling to more than one place")
    return x.mean(tuple(range(2, x.ndim)), keepdims=True)


def _attention(
    q: Any, k: Any, v: Any, mask: Any = None, dropout: float = 0.0, is_causal: bool = False, **said: Any
) -> Any:
    scores = jnp.einsum("...qd,...kd->...qk", q, k) * (said.get("scale") or q.shape[-1] ** -0.5)
    if is_causal:
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf) if mask.dtype == bool else scores + mask
    return jnp.einsum("...qk,...kd->...qd", jax.nn.softmax(scores, -1), v)


def _slice(x: Any, axis: int = 0, begin: Any = None, end: Any = None, step: int = 1) -> Any:
    end = None if end is None or end > x.shape[axis] else end
    return x[(*[slice(None)] * (axis % x.ndim), slice(begin, end, step))]


def _flatten(x: Any, first: int = 0, last: int = -1) -> Any:
    last %= x.ndim
    return x.reshape(*x.shape[:first], int(np.prod(x.shape[first : last + 1])), *x.shape[last + 1 :])


def _expand(x: Any, shape: Any, **_: Any) -> Any:
    own = (*[1] * (len(shape) - x.ndim), *x.shape)
    return jnp.broadcast_to(x, [o if s == -1 else s for o, s in zip(own, shape, strict=True)])


def _split(x: Any, size: Any, axis: int = 0) -> Any:
    ends = np.cumsum(size)[:-1] if isinstance(size, list) else range(size, x.shape[axis], size)
    return jnp.split(x, list(ends), axis)


def _upsampled(x: Any, size: Any = None, factors: Any = None, *_: Any) -> Any:
    size = size or [int(e * f) for e, f in zip(x.shape[2:], factors, strict=True)]
    return jax.image.resize(x, (*x.shape[:2], *size), "nearest")


def _cast(x: Any, *rest: Any, dtype: Any = None, **_: Any) -> Any:
    dtypes = [one for one in (dtype, *rest) if isinstance(one, np.dtype)]
    return x.astype(dtypes[0]) if dtypes else x


def _same(x: Any, *_: Any, **__: Any) -> Any:
    return x


def _linear(x: Any, w: Any, b: Any = None) -> Any:
    return x @ w.T if b is None else x @ w.T + b


_OPS: Final[dict[str, Callable[..., Any]]] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _conv),
    "conv_transpose2d": _conv_transpose,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "max_pool2d": _max_pool,
    "adaptive_avg_pool2d": _mean_pool,
    "scaled_dot_product_attention": _attention,
    "linear": _linear,
    **dict.fromkeys(("matmul", "bmm", "mm"), jnp.matmul),
    "addmm": lambda b, x, w: x @ w + b,
    **dict.fromkeys(("add", "add_"), lambda a, b, alpha=1: a + b * alpha),
    **dict.fromkeys(("sub", "sub_"), lambda a, b, alpha=1: a - b * alpha),
    **dict.fromkeys(("mul", "mul_"), operator.mul),
    **dict.fromkeys(("div", "div_"), operator.truediv),
    "pow": operator.pow,
    "neg": operator.neg,
    **dict.fromkeys(("relu", "relu_"), jax.nn.relu),
    **dict.fromkeys(("hardtanh", "hardtanh_", "clamp"), lambda x, low=-1.0, high=1.0: jnp.clip(x, low, high)),
    **dict.fromkeys(("relu6", "relu6_"), jax.nn.relu6),
    **dict.fromkeys(("silu", "silu_"), jax.nn.silu),
    "gelu": lambda x, approximate="none": jax.nn.gelu(x, approximate=approximate == "tanh"),
    "sigmoid": jax.nn.sigmoid,
    "tanh": jnp.tanh,
    "softmax": lambda x, axis, dtype=None: jax.nn.softmax(x if dtype is None else x.astype(dtype), axis),
    "mean": lambda x, axis=None, keepdim=False: x.mean(None if axis is None else tuple(axis), keepdims=keepdim),
    **dict.fromkeys(("view", "reshape", "_unsafe_view"), jnp.reshape),
    "flatten": _flatten,
    "permute": jnp.transpose,
    "transpose": jnp.swapaxes,
    "t": jnp.transpose,
    "unsqueeze": jnp.expand_dims,
    "squeeze": jnp.squeeze,
    "expand": _expand,
    "cat": lambda xs, axis=0: jnp.concatenate(xs, axis),
    "stack": lambda xs, axis=0: jnp.stack(xs, axis),
    "slice": _slice,
    "select": lambda x, axis, index: jnp.take(x, index, axis),
    "split": _split,
    "split_with_sizes": _split,
    "chunk": lambda x, count, axis=0: jnp.array_split(x, count, axis),
    "unbind": lambda x, axis=0: [jnp.take(x, i, axis) for i in range(x.shape[axis])],
    "unflatten": lambda x, axis, sizes: x.reshape(*x.shape[: axis % x.ndim], *sizes, *x.shape[axis % x.ndim + 1 :]),
    "getitem": operator.getitem,
    "gather": lambda x, axis, index, **_: jnp.take_along_axis(x, index, axis),
    "embedding": lambda table, index, *_: table[index],
    **dict.fromkeys(("upsample_nearest2d", "interpolate"), _upsampled),
    "where": jnp.where,
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **dict.fromkeys(("logical_and", "bitwise_and", "__and__"), jnp.logical_and),
    "logical_not": jnp.logical_not,
    "masked_fill": lambda x, mask, value: jnp.where(mask, value, x),
    "new_ones": lambda x, shape, dtype=None: jnp.ones(shape, dtype or x.dtype),
    "full": lambda shape, value, dtype=None: jnp.full(shape, value, dtype),
    "ones": lambda shape, dtype=None: jnp.ones(shape, dtype),
    "zeros": lambda shape, dtype=None: jnp.zeros(shape, dtype),
    "arange": lambda *ends, dtype=None: jnp.arange(*ends, dtype=dtype),
    "to": _cast,
    "_to_copy": _cast,
    **dict.fromkeys(("contiguous", "clone", "dropout", "dropout_", "alias", "lift_fresh_copy", "detach_"), _same),
    "_assert_tensor_metadata": lambda *_, **__: None,
}
