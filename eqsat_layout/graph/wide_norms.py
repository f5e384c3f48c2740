"""Norms of float64 over groups, instances and layers, of which TVM has no kernels.

In: TVM's own legalisation, a builder, a call. Out: what it makes of the call; a PrimFunc of ours for float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tvm import te, tirx, topi

from eqsat_layout.tir.intrinsics import short_name

_WIDE: Final = "float64"


def _grouped(ordinary: Any, builder: Any, call: Any) -> Any:
    return _of_groups(ordinary, builder, call, int(call.attrs.num_groups))


def _of_instances(ordinary: Any, builder: Any, call: Any) -> Any:
    """Every channel is a group."""
    return _of_groups(ordinary, builder, call, None)


def _of_groups(ordinary: Any, builder: Any, call: Any, groups: int | None) -> Any:
    data, gamma, beta = call.args
    if str(data.ty.dtype) != _WIDE:
        return ordinary(builder, call)
    rank, epsilon = int(data.ty.ndim), float(call.attrs.epsilon)
    channel = int(call.attrs.channel_axis) % rank
    spatial = [int(axis) % rank for axis in call.attrs.axes]

    def compute(x: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
        channels = x.shape[channel]
        count = channels if groups is None else groups
        split = [*x.shape[:channel], count, tirx.floordiv(channels, count), *x.shape[channel + 1 :]]
        inner = [channel + 1, *(axis + (axis > channel) for axis in spatial)]
        whole = topi.reshape(_normal(topi.reshape(x, split), inner, epsilon), x.shape)
        own = [channels if axis == channel else 1 for axis in range(rank)]
        return topi.add(topi.multiply(whole, topi.reshape(gamma, own)), topi.reshape(beta, own))

    return builder.call_te(compute, data, gamma, beta, primfunc_name_hint=short_name(call))


def _of_layers(ordinary: Any, builder: Any, call: Any) -> Any:
    data, gamma, beta = call.args
    if str(data.ty.dtype) != _WIDE:
        return ordinary(builder, call)
    rank, epsilon = int(data.ty.ndim), float(call.attrs.epsilon)
    axes = [int(axis) % rank for axis in call.attrs.axes]

    def compute(x: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
        own = [x.shape[axis] if axis in axes else 1 for axis in range(rank)]
        scale, shift = (topi.reshape(one, own) for one in (gamma, beta))
        return topi.add(topi.multiply(_normal(x, axes, epsilon), scale), shift)

    return builder.call_te(compute, data, gamma, beta, primfunc_name_hint=short_name(call))


def _normal(x: te.Tensor, axes: Sequence[int], epsilon: float) -> te.Tensor:
    """``x`` less its mean, over its deviation."""
    count = tirx.const(1, _WIDE)
    for axis in axes:
        count = count * x.shape[axis].astype(_WIDE)
    less = topi.subtract(x, topi.divide(topi.sum(x, axes, keepdims=True), count))
    variance = topi.divide(topi.sum(topi.multiply(less, less), axes, keepdims=True), count)
    return topi.multiply(less, topi.rsqrt(topi.add(variance, tirx.const(epsilon, _WIDE))))


LEGALIZERS: Final[dict[str, Callable[[Any, Any, Any], Any]]] = {
    "relax.nn.group_norm": _grouped,
    "relax.nn.instance_norm": _of_instances,
    "relax.nn.layer_norm": _of_layers,
}
"""Of which ops."""
