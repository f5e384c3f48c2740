"""Convolutions by constants, what is added to them, and numbers that their channels are multiplied by: as few as do.

In: a Relax module. Out: the same, in which branches of one tensor that a network is trained with are one convolution:
windows of several sizes lie in the largest one, and the tensor itself, or what is left of a batch norm beside the
branches, is a window of one place (RepVGG, Ding et al. 2021). Numbers of each channel become part of weights. Sums are
rounded in another order, as they are where a batch norm becomes part of weights. Where channels and windows lie is read
off the layouts of a convolution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Final

import numpy as np
import tvm
from tvm import ir, relax

from eqsat_layout.passes.read_counts import read_counts, results_of_blocks
from eqsat_layout.tir.structural import nodes_of, with_relax_functions

_SUM: Final = "relax.add"
_DIFFERENCE: Final = "relax.subtract"
_PRODUCT: Final = "relax.multiply"
_PRECISE: Final = ("float32", "float64")


def sum_convolutions(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where there is no such sum."""

    def changed(function: Any) -> Any:
        sums = _Function.of(function).sums()
        return _Writer(mod, sums).visit_expr(function) if sums else function

    return with_relax_functions(mod, changed)


@dataclass(frozen=True)
class _Convolution:
    """One by constants. ``weights``: these, in float64; they are of ``dtype``."""

    call: Any
    weights: Any
    dtype: Any

    @property
    def data(self) -> Any:
        return self.call.args[0]

    @cached_property
    def kind(self) -> tuple[object, ...]:
        """What convolutions have in common that can be one: all but the window and what is padded for it, of transposed
        ones all."""
        attrs, shape = self.call.attrs, self.weights.shape
        names = ("strides", "dilation", "groups", "data_layout", "kernel_layout", "out_layout", "out_dtype")
        own = [str(getattr(attrs, name)) for name in names]
        if hasattr(attrs, "output_padding"):
            own += [str(attrs.padding), str(attrs.output_padding)]
        else:
            shape = tuple(size for axis, size in enumerate(shape) if axis not in self.window)
        return (self.call.op.name, self.data, self.dtype, shape, *own)

    @cached_property
    def layout(self) -> str:
        """Of the weights."""
        return str(self.call.attrs.kernel_layout)

    @property
    def channels(self) -> int:
        """Of the result."""
        return int(self.call.ty.shape.values[self.channel_axis])

    @property
    def channel_axis(self) -> int:
        """Of the result."""
        return (str(self.call.attrs.out_layout) or str(self.call.attrs.data_layout)).index("C")

    def along_channels(self, numbers: Any) -> Any:
        """``numbers`` of the result's rank, along its channels."""
        shape = [1] * int(self.call.ty.ndim)
        shape[self.channel_axis] = -1
        return numbers.reshape(shape)

    def by_channel(self, constant: Any) -> Any:
        """The number of each channel in what is added to the result, or multiplies it; ``None`` if it has others."""
        shape = [1] * int(self.call.ty.ndim)
        shape[len(shape) - constant.ndim :] = constant.shape
        count = shape.pop(self.channel_axis)
        if count not in (1, self.channels) or any(size != 1 for size in shape):
            return None
        return np.broadcast_to(constant.astype("float64").reshape(-1), (self.channels,))

    @cached_property
    def window(self) -> tuple[int, ...]:
        """The axes of the weights that are places."""
        return tuple(axis for axis, letter in enumerate(self.layout) if letter not in "OI")

    @property
    def pads(self) -> tuple[tuple[int, int], ...]:
        """Of each axis of the window: before and behind."""
        given = [int(pad) for pad in self.call.attrs.padding]
        return tuple(zip(given[: len(self.window)], given[len(self.window) :], strict=True))

    @property
    def steps(self) -> tuple[int, ...]:
        """Places of the data between those of the window."""
        return tuple(int(step) for step in self.call.attrs.dilation)

    @property
    def has_channels(self) -> bool:
        """The weights have an axis of them: groups of a transposed convolution share theirs."""
        return int(self.weights.shape[self.layout.index("O")]) == self.channels

    def within(self, other: _Convolution, factor: Any) -> Any:
        """The weights times ``factor`` of each channel in a window as large as that of ``other``; ``None`` where its
        places are others."""
        wanted = [(0, 0)] * self.weights.ndim
        for number, axis in enumerate(self.window):
            step, room = self.steps[number], other.weights.shape[axis] - self.weights.shape[axis]
            before, behind = (theirs - own for own, theirs in zip(self.pads[number], other.pads[number], strict=True))
            if before + behind != room * step or min(before, behind) < 0 or before % step:
                return None
            wanted[axis] = (before // step, behind // step)
        shape = [1] * self.weights.ndim
        shape[self.layout.index("O")] = -1
        return np.pad(self.weights * factor.reshape(shape), wanted)

    def of_scale(self, scale: Any) -> Any:
        """``scale`` of each channel as weights of the same window; ``None`` where the result has other places."""
        attrs, layout = self.call.attrs, self.layout
        ins = self.weights.shape[layout.index("I")]
        if hasattr(attrs, "output_padding") or self.channels != ins * int(attrs.groups):
            return None
        if any(int(stride) != 1 for stride in attrs.strides):
            return None
        at: list[Any] = [0] * self.weights.ndim
        for number, axis in enumerate(self.window):
            (before, behind), step = self.pads[number], self.steps[number]
            size = self.weights.shape[axis]
            if before % step or before + behind != (size - 1) * step:
                return None
            at[axis] = before // step
        channels = np.arange(self.channels)
        at[layout.index("O")], at[layout.index("I")] = channels, channels % ins
        weights = np.zeros_like(self.weights)
        weights[tuple(at)] = scale
        return weights


@dataclass(frozen=True)
class _Term:
    """What is added up: ``value`` times ``factor`` of each channel. ``is_step``: it may be a sum itself."""

    value: Any
    factor: Any
    is_step: bool = False

    @property
    def is_plain(self) -> bool:
        return bool((self.factor == 1).all())


@dataclass(frozen=True)
class _Sum:
    """What a result is written as: convolutions with their weights, terms, a constant. ``gone``: what it then lacks.
    ``beside``: a convolution whose result lies as this one."""

    beside: _Convolution
    convolutions: Sequence[tuple[Any, Any]]
    terms: Sequence[_Term]
    constant: Any
    gone: frozenset[Any]

    @property
    def size(self) -> int:
        """Calls that it takes."""
        parts = len(self.convolutions) + len(self.terms) + (self.constant is not None)
        return parts - 1 + len(self.convolutions) + sum(not term.is_plain for term in self.terms)


@dataclass(frozen=True)
class _Function:
    """The calls of a function, how often their results are read, and those that other blocks read."""

    calls: Mapping[Any, Any]
    readers: Mapping[Any, int]
    results: AbstractSet[Any]

    @classmethod
    def of(cls, function: Any) -> _Function:
        bindings = nodes_of(function, relax.VarBinding)
        calls = {b.var: b.value for b in bindings if isinstance(b.value, ir.Call) and isinstance(b.value.op, ir.Op)}
        return cls(calls, read_counts(function), results_of_blocks(function))

    def sums(self) -> dict[Any, _Sum]:
        """By the variable of what is no part of another sum, which takes fewer calls so."""
        roots = [var for var, call in self.calls.items() if _is_linear(call)]
        inner = {arg for var in roots for arg in self.calls[var].args if self._is_part(arg, self.calls[var])}
        return {var: found for var in roots if var not in inner and (found := self._sum(var)) is not None}

    def _is_part(self, value: Any, call: Any) -> bool:
        """A step that only ``call`` reads, of the same type."""
        own = self._once(value)
        return own is not None and _is_linear(own) and own.ty == call.ty

    def _once(self, value: Any) -> Any:
        """The call whose result ``value`` is, if that is read once, and where what it is made of is known."""
        is_once = isinstance(value, ir.Var) and self.readers[value] == 1 and value not in self.results
        return self.calls.get(value) if is_once else None

    def _sum(self, root: Any) -> _Sum | None:
        args = [arg for var in self._steps(root) for arg in self.calls[var].args]
        known = {arg: one for arg in args if (one := self._convolution(arg, self.calls[root])) is not None}
        beside = next(iter(known.values()), None)
        if beside is None or any(one.channel_axis != beside.channel_axis for one in known.values()):
            return None
        terms, steps = self._terms(root, beside)
        found = self._merged(terms, known, beside, frozenset(steps) - {root})
        finite = all(np.isfinite(weights).all() for _, weights in found.convolutions)
        before = len(steps) + sum(term.value in known for term in terms)
        after = found.size + sum(term.value in known for term in found.terms)
        return found if finite and after < before else None

    def _steps(self, root: Any) -> list[Any]:
        """The result, and what is only part of it."""
        found = [root]
        for var in found:  # which grows
            call = self.calls[var]
            found += [arg for arg in call.args if self._is_part(arg, call)]
        return found

    def _terms(self, root: Any, beside: _Convolution) -> tuple[list[_Term], list[Any]]:
        """What is added up to ``root``, in order, and in which steps; a product with more than a number for each
        channel is a term."""
        terms: list[_Term] = []
        steps: list[Any] = []
        left = [_Term(root, np.ones(beside.channels), is_step=True)]
        while left:
            term = left.pop()
            parts = self._parts(term, beside) if term.is_step else None
            if parts is None:
                terms.append(term)
                continue
            steps.append(term.value)
            left += reversed(parts)
        return terms, steps

    def _parts(self, term: _Term, beside: _Convolution) -> list[_Term] | None:
        """What is added up in one step; ``None`` for a product with more than a number for each channel."""
        call, factor = self.calls[term.value], term.factor
        left, right = call.args
        parts = [(left, factor), (right, -factor if call.op.name == _DIFFERENCE else factor)]
        if call.op.name == _PRODUCT:
            constant, other = (left, right) if isinstance(left, ir.GenericConst) else (right, left)
            is_constant = isinstance(constant, ir.GenericConst) and other.ty == call.ty
            numbers = beside.by_channel(constant.value.numpy()) if is_constant else None
            if numbers is None:
                return None
            parts = [(other, factor * numbers)]
        return [_Term(arg, own, self._is_part(arg, call)) for arg, own in parts]

    def _merged(
        self, terms: Sequence[_Term], known: Mapping[Any, _Convolution], beside: _Convolution, steps: frozenset[Any]
    ) -> _Sum:
        """Convolutions of one kind as one, with the numbers of their channels."""
        by_kind: dict[object, list[tuple[_Term, _Convolution]]] = {}
        constants, rest = [], []
        for term in terms:
            one = known.get(term.value)
            if isinstance(term.value, ir.GenericConst):
                constants.append(term.value.value.numpy() * beside.along_channels(term.factor))
            elif one is not None and one.has_channels:
                by_kind.setdefault(one.kind, []).append((term, one))
            else:
                rest.append(term)
        convolutions, gone = [], set(steps)
        for own in by_kind.values():
            widest = max((one for _, one in own), key=lambda one: one.weights.size)
            parts = [(term, widest.of_scale(term.factor) if widest.data.same_as(term.value) else None) for term in rest]
            parts += [(term, one.within(widest, term.factor)) for term, one in own]
            taken = [(term, weights) for term, weights in parts if weights is not None]
            rest = [term for term, weights in parts if weights is None]
            total = reduce(np.add, [weights for _, weights in taken])
            convolutions.append((widest.call, total.astype(widest.dtype)))
            gone |= {term.value for term, _ in taken if term.value in known}
        return _Sum(beside, convolutions, rest, reduce(np.add, constants) if constants else None, frozenset(gone))

    def _convolution(self, value: Any, total: Any) -> _Convolution | None:
        """The convolution by constants whose result ``value`` is, if nothing else reads it."""
        call = self._once(value)
        if call is None or len(call.args) != 2 or not isinstance(call.args[1], ir.GenericConst) or call.ty != total.ty:
            return None
        attrs, weights = call.attrs, call.args[1].value.numpy()
        if weights.dtype not in _PRECISE or str(call.ty.dtype) not in _PRECISE or call.ty.shape is None:
            return None  # a sum of half floats would forget the smaller ones
        layouts = [str(getattr(attrs, name, "")) for name in ("kernel_layout", "data_layout", "out_layout")]
        if not layouts[0] or not all(one.isupper() for one in layouts if one) or len(layouts[0]) != weights.ndim:
            return None
        return _Convolution(call, weights.astype("float64"), weights.dtype)


def _is_linear(call: Any) -> bool:
    """A sum, a difference, or a product with a constant."""
    is_scaled = call.op.name == _PRODUCT and any(isinstance(arg, ir.GenericConst) for arg in call.args)
    return is_scaled or call.op.name in (_SUM, _DIFFERENCE)


@relax.expr_functor.mutator
class _Writer(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, sums: Mapping[Any, _Sum]) -> None:
        super().__init__(mod)
        self._sums = sums
        self._gone = frozenset(var for one in sums.values() for var in one.gone)

    def visit_var_binding_(self, binding: Any) -> None:
        found = self._sums.get(binding.var)
        if found is not None:
            super().visit_var_binding_(relax.VarBinding(binding.var, self._value(found, binding.value.ty)))
        elif binding.var not in self._gone:
            super().visit_var_binding_(binding)

    def _value(self, found: _Sum, ty: Any) -> Any:
        """Convolutions, and what is added to them, one by one; the last step is not bound."""
        dtype = str(ty.dtype)
        values = []
        for call, weights in found.convolutions:
            operands = [self.visit_expr(call.args[0]), relax.const(weights, str(weights.dtype))]
            values.append(ir.Call(call.op, operands, call.attrs, call.ty_args, call.span))
        if found.constant is not None:
            values.append(relax.const(found.constant.astype(dtype), dtype))
        for term in found.terms:
            value = self.visit_expr(term.value)
            factor = relax.const(found.beside.along_channels(term.factor).astype(dtype), dtype)
            values.append(value if term.is_plain else relax.op.multiply(value, factor))
        total, *others = values
        for other in others:
            operands = [self.builder_.emit(one) if isinstance(one, ir.Call) else one for one in (total, other)]
            total = relax.op.add(*operands)
        return total
