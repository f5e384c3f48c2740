"""Batch norms of constants: part of the convolution or product in front, or one product and a sum of each element.

In: a Relax module. Out: the same without batch norms whose statistics are constants. A convolution whose result nobody
else reads gets weights times the scale of each output channel; where its channels are is read off its layouts, so that
it may have any number of dimensions. So does a product with a matrix of weights. A bias may lie between, and changes of
shape that keep the channels last. TVM's own pass knows 2-D convolutions, and takes half a second for ResNet-50.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import tvm
from tvm import ir, relax, tirx

from eqsat_layout.passes.read_counts import read_counts
from eqsat_layout.tir.structural import nodes_of, with_relax_functions

_BATCH_NORM: Final = "relax.nn.batch_norm"


def fold_batch_norms(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where there is none of constants."""

    def folded(function: Any) -> Any:
        norms = _norms_of(function)
        return _Folder(mod, norms).visit_expr(function) if norms else function

    return with_relax_functions(mod, folded)


@dataclass(frozen=True)
class _Front:
    """A convolution or product whose result goes to one norm only.

    ``weights``: constants times the scale. ``reshapes``: calls between, the last one first. ``bias``: of each channel,
    added between. ``gone``: the variables of all of these.
    """

    call: Any
    weights: Any
    reshapes: Sequence[Any]
    bias: Any
    gone: Sequence[Any]


@dataclass(frozen=True)
class _Norm:
    """A batch norm of which only the values are read. ``front``: what its scale becomes part of, if there is any."""

    call: Any
    var: Any
    front: _Front | None

    @property
    def source(self) -> Any:
        """What it normalises."""
        return self.call.args[0]

    @property
    def axis(self) -> int:
        """The axis of the channels."""
        return int(self.call.attrs.axis) % self.rank

    @property
    def rank(self) -> int:
        """The rank of the tensor."""
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
    """The batch norms, by the variable of the values that they normalise."""
    bindings = nodes_of(function, relax.VarBinding)
    calls = {binding.var: binding.value for binding in bindings if isinstance(binding.value, ir.Call)}
    if not any(_is_constant_norm(call) for call in calls.values()):
        return {}
    readers = read_counts(function)
    items = [(binding.var, binding.value) for binding in bindings if isinstance(binding.value, relax.TupleGetItem)]
    unread = Counter(item.tuple_value for var, item in items if not readers[var])
    blocks = enumerate(nodes_of(function, relax.DataflowBlock))
    homes = {binding.var: number for number, block in blocks for binding in block.bindings}
    found: dict[Any, _Norm] = {}
    for var, item in items:
        norm = calls.get(item.tuple_value)
        if norm is None or not _is_constant_norm(norm):
            continue
        others = readers[item.tuple_value] - unread[item.tuple_value] - bool(readers[var])
        if item.index == 0 and not others:
            plain = _Norm(norm, item.tuple_value, None)
            front = _front_of(plain, calls, readers)
            found[var] = plain if front is None or not _reaches(front, plain, homes) else replace(plain, front=front)
    return found


def _reaches(front: _Front, norm: _Norm, homes: Mapping[Any, int]) -> bool:
    """What the front reads is known where the norm is: variables of one dataflow block are not in the next."""
    inside = [arg for arg in front.call.args if isinstance(arg, relax.DataflowVar)]
    return all(homes.get(var) == homes.get(norm.var) for var in inside)


def _front_of(norm: _Norm, calls: Mapping[Any, Any], readers: Mapping[Any, int]) -> _Front | None:
    var, axis = norm.source, norm.axis
    reshapes: list[Any] = []
    gone: list[Any] = []
    bias: Any = None
    while readers[var] == 1 and var in calls:
        call = calls[var]
        gone.append(var)
        added = _added_channels(call, axis) if bias is None else None
        if added is not None:
            var, bias = added
        elif _keeps_last(call, axis):
            reshapes.append(call)
            var = call.args[0]
            axis = int(var.ty.ndim) - 1
        else:
            weights = _scaled_weights(norm, call, axis)
            bias = np.zeros_like(norm.mean) if bias is None else bias
            return None if weights is None else _Front(call, weights, reshapes, bias, gone)
    return None


def _added_channels(call: Any, axis: int) -> tuple[Any, Any] | None:
    """The variable and the number for each channel that is added to it, where ``call`` does that."""
    if not isinstance(call.op, ir.Op) or call.op.name != "relax.add":
        return None
    for var, bias in (call.args, call.args[::-1]):
        if isinstance(var, ir.Var) and isinstance(bias, ir.GenericConst) and var.ty == call.ty:
            shape = [1] * int(var.ty.ndim)
            shape[axis] = int(np.prod(bias.value.shape))
            if tuple(bias.value.shape) == tuple(shape)[-bias.value.numpy().ndim :] and shape[axis] > 1:
                return var, bias.value.numpy().astype("float64").reshape(-1)
    return None


def _keeps_last(call: Any, axis: int) -> bool:
    """It changes the shape of a tensor whose channels, along ``axis``, are its last axis before and after."""
    if not isinstance(call.op, ir.Op) or call.op.name != "relax.reshape" or not isinstance(call.args[0], ir.Var):
        return False
    shapes = [one.ty.shape for one in (call, call.args[0])]
    if any(shape is None or not len(shape.values) for shape in shapes):
        return False
    last = [shape.values[-1] for shape in shapes]
    is_same = all(isinstance(extent, tirx.IntImm) for extent in last) and int(last[0]) == int(last[1])
    return is_same and axis == len(shapes[0].values) - 1


def _is_constant_norm(call: Any) -> bool:
    return (
        isinstance(call.op, ir.Op)
        and call.op.name == _BATCH_NORM
        and not call.attrs.training
        and isinstance(call.args[0], ir.Var)
        and call.args[0].ty.ndim > 0
        and all(isinstance(arg, ir.GenericConst) for arg in call.args[1:])
    )


def _scaled_weights(norm: _Norm, call: Any, axis: int) -> Any:
    """The weights of the convolution or product ``call``, whose result has its channels along ``axis``, times the
    scale; ``None`` where it has no such weights, or where they would be infinite or lose bits."""
    channels = _channels_of_weights(call, axis)
    if channels is None or len(call.args) != 2 or not isinstance(call.args[1], ir.GenericConst):
        return None
    weights = call.args[1].value.numpy()
    if weights.ndim < 2 or weights.shape[channels] != len(norm.scale):
        return None  # the groups of a transposed convolution share their names of output channels
    shape = [1] * weights.ndim
    shape[channels] = -1
    with np.errstate(all="ignore"):
        wide = weights.astype("float64") * norm.scale.reshape(shape)
        made = wide.astype(weights.dtype)
        others = tuple(axis for axis in range(weights.ndim) if axis != channels % weights.ndim)
        largest, lost = (np.abs(one).max(axis=others, initial=0) for one in (wide, made - wide))
    step = np.spacing(np.ones((), weights.dtype))
    has_all = bool((lost <= step * largest).all())  # not where a number is infinite or none
    return _constant(made, weights.dtype) if has_all else None


def _channels_of_weights(call: Any, axis: int) -> int | None:
    """The axis of the weights along which the channels of the result lie that are its ``axis``."""
    if isinstance(call.op, ir.Op) and call.op.name == "relax.matmul":
        return -1 if axis == int(call.ty.ndim) - 1 else None
    layouts = _layouts(call)
    if layouts is None or layouts[1].find("C") != axis or "O" not in layouts[0]:
        return None
    return layouts[0].find("O")


def _constant(values: Any, dtype: Any) -> Any:
    with np.errstate(all="ignore"):
        return relax.const(values.astype(dtype), str(dtype))  # without a dtype, float64 would become float32


def _layouts(call: Any) -> tuple[str, str] | None:
    """The layouts of the weights and of the result, if each letter is one axis."""
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
        self._gone = {norm.var for norm in norms.values()}
        self._gone |= {var for norm in norms.values() if norm.front for var in norm.front.gone}

    def visit_var_binding_(self, binding: Any) -> None:
        norm = self._norms.get(binding.var)
        if norm is not None:
            super().visit_var_binding_(relax.VarBinding(binding.var, self._value(norm)))
        elif binding.var not in self._gone and not self._is_of_gone(binding.value):
            super().visit_var_binding_(binding)

    def _is_of_gone(self, value: Any) -> bool:
        """A result of a norm that nobody reads."""
        return isinstance(value, relax.TupleGetItem) and value.tuple_value in self._gone

    def _value(self, norm: _Norm) -> Any:
        op, front = relax.op, norm.front
        if front is None:  # in TVM's order of operations
            centred = self.builder_.emit(op.subtract(self.visit_expr(norm.source), norm.along(norm.mean)))
            scaled = self.builder_.emit(op.multiply(centred, norm.along(norm.scale)))
            return op.add(scaled, norm.along(norm.bias))
        value = _with_operands(front.call, self.visit_expr(front.call.args[0]), front.weights)
        for reshape in reversed(front.reshapes):
            value = _with_operands(reshape, self.builder_.emit(value), reshape.args[1])
        product = self.builder_.emit(value, name_hint=str(norm.source.name))
        return op.add(product, norm.along(norm.bias + (front.bias - norm.mean) * norm.scale))


def _with_operands(call: Any, *operands: Any) -> Any:
    return ir.Call(call.op, list(operands), call.attrs, call.ty_args, call.span)
