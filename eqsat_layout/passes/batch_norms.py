"""Batch norms of constants: part of the convolution in front, or one product and a sum of each element.

In: a Relax module. Out: the same without batch norms whose statistics are constants. A convolution whose result nobody
else reads gets weights times the scale of each output channel; where its channels are is read off its layouts, so that
it may have any number of dimensions. TVM's own pass knows 2-D convolutions, and takes half a second for ResNet-50.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import tvm
from tvm import ir, relax

from eqsat_layout.tir.structural import nodes_of

_BATCH_NORM: Final = "relax.nn.batch_norm"


def fold_batch_norms(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where there is none of constants."""
    changed: dict[Any, Any] = {}
    for name, function in mod.functions_items():
        norms = _norms_of(function) if isinstance(function, relax.Function) else {}
        if norms:
            changed[name] = _Folder(mod, norms).visit_expr(function)
    if not changed:
        return mod
    return tvm.IRModule({**dict(mod.functions_items()), **changed}, attrs=mod.attrs, global_infos=mod.global_infos)


@dataclass(frozen=True)
class _Norm:
    """A batch norm of which only the values are read. ``convolution``: the call in front if nobody
    else reads it, or ``None``."""

    call: Any
    var: Any
    convolution: Any

    @property
    def source(self) -> Any:
        """What it normalises."""
        return self.call.args[0]

    @property
    def axis(self) -> int:
        """Of the channels."""
        return int(self.call.attrs.axis) % self.rank

    @property
    def rank(self) -> int:
        """Of the tensor."""
        return int(self.source.ty.ndim)

    @cached_property
    def scale(self) -> Any:
        """What each channel is multiplied by, in float64."""
        gamma, _, _, variance = self._statistics
        with np.errstate(all="ignore"):  # infinities and NaN are results as in the program
            scale = 1.0 / np.sqrt(variance + float(self.call.attrs.epsilon))
        return gamma * scale if self.call.attrs.scale else scale

    @property
    def bias(self) -> Any:
        """What is added then."""
        beta = self._statistics[1]
        return beta if self.call.attrs.center else np.zeros_like(beta)

    @property
    def mean(self) -> Any:
        """What is subtracted before."""
        return self._statistics[2]

    def along(self, channels: Any) -> Any:
        """A constant of the tensor's dtype and rank that has ``channels`` along the axis."""
        shape = [1] * self.rank
        shape[self.axis] = len(channels)
        return _constant(channels.reshape(shape), self._statistics_dtype)

    @property
    def _statistics_dtype(self) -> Any:
        return self.call.args[1].value.numpy().dtype

    @cached_property
    def _statistics(self) -> list[Any]:
        return [constant.value.numpy().astype("float64") for constant in self.call.args[1:]]


def _norms_of(function: Any) -> dict[Any, _Norm]:
    """By the variable of the values."""
    bindings = nodes_of(function, relax.VarBinding)
    calls = {binding.var: binding.value for binding in bindings if isinstance(binding.value, ir.Call)}
    if not any(_is_constant_norm(call) for call in calls.values()):
        return {}
    readers = Counter(var for binding in bindings for var in relax.analysis.free_vars(binding.value))
    readers.update(var for sequence in nodes_of(function, relax.SeqExpr) for var in _free_in(sequence.body))
    found: dict[Any, _Norm] = {}
    for binding in bindings:
        item = binding.value
        if not isinstance(item, relax.TupleGetItem) or item.index != 0 or readers[item.tuple_value] != 1:
            continue
        norm = calls.get(item.tuple_value)
        if norm is None or not _is_constant_norm(norm):
            continue
        before = calls.get(norm.args[0]) if readers[norm.args[0]] == 1 else None
        found[binding.var] = _Norm(norm, item.tuple_value, before)
    return found


def _free_in(expr: Any) -> list[Any]:
    return list(relax.analysis.free_vars(expr))


def _is_constant_norm(call: Any) -> bool:
    return (
        isinstance(call.op, ir.Op)
        and call.op.name == _BATCH_NORM
        and not call.attrs.training
        and isinstance(call.args[0], ir.Var)
        and call.args[0].ty.ndim > 0
        and all(isinstance(arg, ir.GenericConst) for arg in call.args[1:])
    )


def _scaled_weights(norm: _Norm) -> Any:
    """The weights of the convolution times the scale; ``None`` where there is no such convolution."""
    call = norm.convolution
    layouts = None if call is None else _layouts(call)
    if layouts is None or len(call.args) != 2 or not isinstance(call.args[1], ir.GenericConst):
        return None
    kernel, out = layouts
    weights = call.args[1].value.numpy()
    channels = kernel.find("O")
    if out.find("C") != norm.axis or channels < 0 or weights.shape[channels] != len(norm.scale):
        return None  # the groups of a transposed convolution share their names of output channels
    shape = [1] * weights.ndim
    shape[channels] = -1
    scale = norm.scale.reshape(shape).astype(np.promote_types(weights.dtype, np.float32))
    return _constant(weights * scale, weights.dtype)


def _constant(values: Any, dtype: Any) -> Any:
    with np.errstate(all="ignore"):
        return relax.const(values.astype(dtype), str(dtype))  # without a dtype, float64 would become float32


def _layouts(call: Any) -> tuple[str, str] | None:
    """Of the weights and of the result, if each letter is one axis."""
    attrs = call.attrs
    if attrs is None or not hasattr(attrs, "kernel_layout"):
        return None
    kernel, out = str(attrs.kernel_layout), str(attrs.out_layout) or str(attrs.data_layout)
    return (kernel, out) if kernel.isupper() and out.isupper() else None


@relax.expr_functor.mutator
class _Folder(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, norms: Mapping[Any, _Norm]) -> None:
        super().__init__(mod)
        self._norms = norms
        self._weights = {var: weights for var, norm in norms.items() if (weights := _scaled_weights(norm)) is not None}
        self._gone = {norm.var for norm in norms.values()} | {norms[var].source for var in self._weights}

    def visit_var_binding_(self, binding: Any) -> None:
        norm = self._norms.get(binding.var)
        if norm is not None:
            value = self._value(norm, self._weights.get(binding.var))
            super().visit_var_binding_(relax.VarBinding(binding.var, value))
        elif binding.var not in self._gone:
            super().visit_var_binding_(binding)

    def _value(self, norm: _Norm, weights: Any) -> Any:
        op = relax.op
        if weights is None:  # in TVM's order of operations
            centred = self.builder_.emit(op.subtract(self.visit_expr(norm.source), norm.along(norm.mean)))
            scaled = self.builder_.emit(op.multiply(centred, norm.along(norm.scale)))
            return op.add(scaled, norm.along(norm.bias))
        call = norm.convolution
        operands = [self.visit_expr(call.args[0]), weights]
        folded = ir.Call(call.op, operands, call.attrs, call.ty_args, call.span)
        folded = self.builder_.emit(folded, name_hint=str(norm.source.name))
        return op.add(folded, norm.along(norm.bias - norm.mean * norm.scale))
