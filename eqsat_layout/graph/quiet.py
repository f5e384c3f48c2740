"""Relax ops as PrimFuncs without the warnings that TVM's own legalisations write to the standard error of the process.

In: a call of one of :data:`LEGALIZERS`. Out: what it computes as a PrimFunc. TVM's writes "Fast mode segfaults" for
every take that does not say what places outside are (kernels of ours look at these first:
:mod:`eqsat_layout.readers.guards.bounds`), and "Detected pow(x, y)" for every ``x ** 3``.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import relax, te

_TAKE: Final = "relax.take"
_UNSAID: Final = "fast"
_POWER: Final = "relax.power"
_WIDE: Final = ("float32", "float64")


def _take(builder: Any, call: Any) -> Any:
    axis, are_tensors = call.attrs.axis, all(isinstance(one.ty, relax.TensorType) for one in call.args)
    if call.attrs.mode != _UNSAID or axis is None or not are_tensors:
        return _ordinary(builder, call)
    return builder.call_te(_taken, *call.args, int(axis) % call.args[0].ty.ndim, primfunc_name_hint="take")


def _taken(data: Any, places: Any, axis: int) -> Any:
    rest = axis + len(places.shape)

    def element(*at: Any) -> Any:
        return data(*at[:axis], places(*at[axis:rest]), *at[rest:])

    shape = [*data.shape[:axis], *places.shape, *data.shape[axis + 1 :]]
    return te.compute(shape, element, name="T_take", tag="injective")


def _power(builder: Any, call: Any) -> Any:
    """Of ``x ** 3`` the product that torch and ONNX Runtime compute too."""
    base, exponent = call.args
    is_cube = isinstance(exponent, tvm.ir.GenericConst) and exponent.value.shape == () and exponent.value.numpy() == 3
    if not is_cube or str(call.ty.dtype) not in _WIDE or not isinstance(base.ty.shape, relax.ShapeExpr):
        return _ordinary(builder, call)
    return builder.call_te(_cube, base, primfunc_name_hint="power")


def _cube(x: Any) -> Any:
    return te.compute(x.shape, lambda *at: x(*at) * x(*at) * x(*at), name="T_power", tag="broadcast")


def _ordinary(builder: Any, call: Any) -> Any:
    return call.op.get_attr("FLegalize")(builder, call)


LEGALIZERS: Final = {_TAKE: _take, _POWER: _power}
