"""What the graphs of all algorithms begin with: operands as the op has them, zeros around the data.

In: a :class:`Convolution`. Out: Relax variables and tensor expressions in the op's own order and layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, relax, te, tirx, topi

from eqsat_layout.graph.te_kernels import DescribedModule, TeKernel
from eqsat_layout.implementations.algorithms.convolution import Convolution


def ordered_by(axes: Sequence[int], values: Sequence[Any]) -> tuple[Any, ...]:
    """``values`` at the positions ``axes``."""
    found: list[Any] = [None] * len(axes)
    for axis, value in zip(axes, values, strict=True):
        found[axis] = value
    return tuple(found)


class GraphBuilder:
    """Emits ops and kernels of their own into the function of a graph."""

    def __init__(self) -> None:
        self._builder = relax.BlockBuilder()
        self._kernels: dict[Any, TeKernel] = {}

    def emit(self, call: Any) -> Any:
        """The variable of an op's result."""
        return self._builder.emit(call)

    def emit_kernel(self, compute: Callable[..., te.Tensor], *operands: Any, name: str) -> Any:
        """The variable of what ``compute`` makes of operands whose sizes are known."""
        kernel = TeKernel.of(compute, operands)
        is_taken = any(other.name_hint == name for other in self._kernels)
        callee = ir.GlobalVar(f"{name}_{len(self._kernels)}" if is_taken else name)
        types = [operand.ty for operand in kernel.operands]
        relax.expr._update_type(callee, relax.FuncType([*types, kernel.ty], relax.TupleType([]), purity=False))
        self._kernels[callee] = kernel
        return self._builder.emit(relax.call_tir(callee, kernel.operands, kernel.ty))

    def module(self, params: Sequence[Any], emit_result: Callable[[], Any]) -> DescribedModule:
        """``main(*params)`` with the result that is emitted, and all kernels."""
        with self._builder.function("main", list(params)):
            with self._builder.dataflow():
                result = self._builder.emit_output(emit_result())
            self._builder.emit_func_output(result)
        return DescribedModule(self._builder.get()["main"], self._kernels)


def module_of(conv: Convolution, compute: Callable[[GraphBuilder, Any, Any], Any]) -> DescribedModule:
    """``main(data, kernel)`` in the op's own operand order and layouts; ``compute`` emits it and gives the result.

    It is given a kernel whose windows begin at their beginning, also where those of the op are flipped, and that has
    all outputs, each with the inputs of its own group, also where that of the op has it the other way round.
    """
    data, kernel, params = _operands(conv)
    builder = GraphBuilder()

    def emit_result() -> Any:
        own = kernel
        if conv.is_spread:
            own = builder.emit_kernel(lambda k: _gathered(k, conv), own, name="gathered_kernel")
        if any(conv.flipped):
            own = builder.emit_kernel(lambda k: _upright(k, conv), own, name="upright_kernel")
        return compute(builder, data, own)

    return builder.module(params, emit_result)


def _gathered(kernel: te.Tensor, conv: Convolution) -> te.Tensor:
    inputs, outputs = (channels // conv.groups for channels in conv.channels)

    def element(*indices: Any) -> Any:
        o, i, *window = (indices[axis] for axis in conv.kernel)
        own = (tirx.floormod(o, outputs), tirx.floordiv(o, outputs) * inputs + i, *window)
        return kernel(*ordered_by(conv.kernel, own))

    shape = ordered_by(conv.kernel, (conv.channels[1], inputs, *conv.windows))
    return te.compute(shape, element, name="gathered_kernel")


def _upright(kernel: te.Tensor, conv: Convolution) -> te.Tensor:
    def element(*indices: Any) -> Any:
        o, i, *window = (indices[axis] for axis in conv.kernel)
        own = [w - 1 - u if f else u for u, w, f in zip(window, conv.windows, conv.flipped, strict=True)]
        return kernel(*ordered_by(conv.kernel, (o, i, *own)))

    return te.compute(kernel.shape, element, name="upright_kernel")


def _operands(conv: Convolution) -> tuple[Any, Any, list[Any]]:
    """The data, the kernel, and both as parameters of ``main``, in the order of the op."""
    channels, outputs = conv.channels
    sides = (outputs // conv.groups, channels) if conv.is_spread else (outputs, channels // conv.groups)
    shapes = (
        ordered_by(conv.data, (conv.batch, channels, *conv.size)),
        ordered_by(conv.kernel, (*sides, *conv.windows)),
    )
    data, kernel = (
        relax.Var(name, relax.TensorType(shape, dtype))
        for name, shape, dtype in zip(("data", "kernel"), shapes, conv.factors, strict=True)
    )
    return data, kernel, [data, kernel] if conv.data_operand == 0 else [kernel, data]


def in_result_order(result: Any, conv: Convolution) -> Any:
    """``result``, which is (n, h, ..., o), in the order of the op's."""
    last = len(conv.result) - 1
    return relax.op.permute_dims(result, ordered_by(conv.result, (0, last, *range(1, last))))


def zero_padded(
    data: te.Tensor, conv: Convolution, before: Sequence[int], after: Sequence[int], name: str
) -> te.Tensor:
    """``data`` with zeros around the axes that have windows."""
    if not any((*before, *after)):
        return data
    return topi.nn.pad(data, ordered_by(conv.data, (0, 0, *before)), ordered_by(conv.data, (0, 0, *after)), name=name)


def window_axes(conv: Convolution) -> list[Any]:
    """To reduce over, one for each axis of the window."""
    return [te.reduce_axis((0, extent), name) for extent, name in zip(conv.windows, "rqs", strict=False)]


def met(conv: Convolution, places: Sequence[Any], taps: Sequence[Any]) -> list[Any]:
    """The elements of padded data that elements of the window meet at ``places`` of the result."""
    axes = zip(places, taps, conv.strides, conv.dilation, strict=True)
    return [place * stride + tap * dilation for place, tap, stride, dilation in axes]


def multiplied(conv: Convolution, data: Any, weight: Any) -> Any:
    """Two elements, as the op multiplies them."""
    return data.astype(conv.dtype) * weight.astype(conv.dtype)


def convolved(data: te.Tensor, kernel: te.Tensor, *, conv: Convolution, name: str) -> te.Tensor:
    """The convolution as it is defined, its windows upright."""
    before, after = zip(*conv.padding, strict=True)
    around = zero_padded(data, conv, before, after, f"{name}_pad")
    c, taps = te.reduce_axis((0, conv.channels[0]), "c"), window_axes(conv)

    def element(*indices: Any) -> Any:
        n, o, *places = (indices[axis] for axis in conv.result)
        value = around(*ordered_by(conv.data, (n, c, *met(conv, places, taps))))
        return te.sum(multiplied(conv, value, kernel(*ordered_by(conv.kernel, (o, c, *taps)))), axis=[c, *taps])

    shape = ordered_by(conv.result, (conv.batch, conv.channels[1], *conv.out_size))
    return te.compute(shape, element, name=name)
