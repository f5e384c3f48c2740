"""Kernels of tensor expressions over operands of known sizes.

In: a function of TE tensors, and its arguments as Relax has them. Out: :class:`TeKernel`. TVM's ``call_te`` takes twice
as long: it looks for symbols in all shapes, registers the kernel in a module, and leaves cycles to the collector.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, relax, te, tirx
from tvm.relax.expr import te_tensor

from eqsat_layout.cached_property import cached_property
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.tensor_expressions import analyse_tensors


@dataclass(frozen=True, eq=False)
class TeKernel:
    """A kernel over ``tensors``, the last of which is its only result: the values that it is called with, and the type
    of the result."""

    tensors: tuple[Any, ...]
    operands: tuple[Any, ...]
    ty: Any

    @classmethod
    def of(cls, compute: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> TeKernel:
        """What ``compute`` gives for ``args`` and ``kwargs``, their tensors and shapes as TE has them.

        Raises ``TypeError`` where a size is not known, and where there are several results.
        """
        kwargs = kwargs or {}
        given = _Arguments()
        made = compute(*map(given.converted, args), **{name: given.converted(arg) for name, arg in kwargs.items()})
        if not isinstance(made, te.Tensor):
            raise TypeError("there are several results")
        ty = relax.TensorType(_known(made.shape), made.dtype)
        return cls((*given.tensors, made), tuple(given.values), ty)

    @cached_property
    def computation(self) -> Computation | None:
        """What it computes, where that is read without its PrimFunc."""
        return analyse_tensors(self.tensors)

    def func(self) -> Any:
        """Its PrimFunc, made anew; raises what TVM raises where it makes none."""
        return te.create_prim_func(list(self.tensors), "int64").without_attr("global_symbol")


class _Arguments:
    """``values``: those that are tensors, and ``tensors`` that stand for them."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.tensors: list[Any] = []

    def converted(self, arg: Any) -> Any:
        """As TE takes it."""
        if arg is None or isinstance(arg, int | float | str | ir.Type | ir.Attrs | tirx.IntImm | tirx.FloatImm):
            return arg
        if isinstance(arg, relax.ShapeExpr):
            return list(_known(arg.values))
        if isinstance(arg, ir.Expr) and isinstance(arg.ty, relax.TensorType):
            return self._tensor(arg)
        if isinstance(arg, list | ir.Array):
            return [self.converted(one) for one in arg]
        if isinstance(arg, tuple):
            return tuple(self.converted(one) for one in arg)
        raise TypeError(f"no argument of a kernel: {type(arg).__name__}")

    def _tensor(self, value: Any) -> Any:
        if not isinstance(value.ty.shape, relax.ShapeExpr):
            raise TypeError("the shape of a tensor is not known")
        _known(value.ty.shape.values)
        count = len(self.tensors)
        name = value.name if isinstance(value, relax.Var) else string.ascii_uppercase[count:][:1] or f"operand{count}"
        tensor = te_tensor(value, {}, name)
        self.values.append(value)
        self.tensors.append(tensor)
        return tensor


def _known(shape: Any) -> Any:
    if not all(isinstance(extent, tirx.IntImm) for extent in shape):
        raise TypeError("a size is not known")
    return shape


@dataclass(frozen=True, eq=False)
class DescribedModule:
    """A Relax function ``main``, and the kernels that it calls, by their global variables."""

    main: Any
    kernels: Mapping[Any, TeKernel]

    def whole(self) -> tvm.IRModule:
        """With all PrimFuncs."""
        functions = {callee: kernel.func() for callee, kernel in self.kernels.items()}
        return tvm.IRModule({ir.GlobalVar("main"): self.main, **functions})


__all__ = ["DescribedModule", "TeKernel"]
