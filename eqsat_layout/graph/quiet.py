"""Relax ops as PrimFuncs without the warnings that TVM's own legalisations write to the standard error of the process.

In: a call of one of :data:`LEGALIZERS`. Out: what it computes as a PrimFunc. TVM's writes "Fast mode segfaults" for
every take that does not say what places outside are (kernels of ours look at these first:
:mod:`eqsat_layout.readers.guards.bounds`), and "Detected pow(x, y)" for every ``x ** 3``
and what is higher.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import relax, te, tirx

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
    """Of ``x ** 3`` the product that torch and ONNX Runtime compute too. TVM warns of numbers from 3 on, each time that
    a pass goes over them: others are operands, in single precision at least, as TVM computes powers of halves.
    """
    base, exponent = call.args
    is_number = isinstance(exponent, tvm.ir.GenericConst) and exponent.value.shape == ()
    number = exponent.value.numpy().astype("float64").item() if is_number else 0.0
    dtype = str(call.ty.dtype)
    is_float = dtype.startswith(("float", "bfloat")) and isinstance(base.ty.shape, relax.ShapeExpr)
    if number < 3 or not is_float:
        return _ordinary(builder, call)
    wide = dtype if dtype in _WIDE else "float32"
    if number == 3:
        return builder.call_te(_cube, base, wide, primfunc_name_hint="power")
    return builder.call_te(_power_in, base, relax.const(number, wide), primfunc_name_hint="power")


def _cube(x: Any, wide: str) -> Any:
    def element(*at: Any) -> Any:
        factor = x(*at).astype(wide)
        return (factor * factor * factor).astype(x.dtype)

    return te.compute(x.shape, element, name="T_power", tag="broadcast")


def _power_in(x: Any, exponent: Any) -> Any:
    def element(*at: Any) -> Any:
        return tirx.pow(x(*at).astype(exponent.dtype), exponent()).astype(x.dtype)

    return te.compute(x.shape, element, name="T_power", tag="broadcast")


def _ordinary(builder: Any, call: Any) -> Any:
    return call.op.get_attr("FLegalize")(builder, call)


LEGALIZERS: Final = {_TAKE: _take, _POWER: _power}
