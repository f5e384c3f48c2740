"""Relax ops as PrimFuncs without the warnings that TVM's own legalisations write to the standard error of the process.

In: a call of one of :data:`LEGALIZERS`. Out: what it computes as a PrimFunc. TVM's writes "Fast mode segfaults" for
every take that does not say what places outside are (kernels of ours look at these first:
:mod:`eqsat_layout.readers.guards.bounds`), and "Detected pow(x, y)" for every ``x ** 3``
and what is higher.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import relax, te, topi

_TAKE: Final = "relax.take"
_UNSAID: Final = "fast"
_POWER: Final = "relax.power"
_WIDE: Final = ("float32", "float64")
_MOST_FACTORS: Final = 32


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
    """Of ``x ** 3`` and the like the product that torch and ONNX Runtime, or LLVM, compute too. TVM warns of numbers
    from 3 on, each time that a pass goes over them: others are operands.
    """
    base, exponent = call.args
    is_number = isinstance(exponent, tvm.ir.GenericConst) and exponent.value.shape == ()
    number = exponent.value.numpy().astype("float64").item() if is_number else 0.0
    is_float = str(call.ty.dtype).startswith(("float", "bfloat")) and isinstance(base.ty.shape, relax.ShapeExpr)
    if number < 3 or not is_float:
        return _ordinary(builder, call)
    if number.is_integer() and number <= _MOST_FACTORS:
        return builder.call_te(_product, base, int(number), primfunc_name_hint="power")
    return builder.call_te(topi.power, base, exponent, primfunc_name_hint="power")


def _product(x: Any, count: int) -> Any:
    wide = x.dtype if x.dtype in _WIDE else "float32"

    def element(*at: Any) -> Any:
        return _power_of(x(*at).astype(wide), count).astype(x.dtype)

    return te.compute(x.shape, element, name="T_power", tag="broadcast")


def _power_of(factor: Any, count: int) -> Any:
    if count == 1:
        return factor
    half = _power_of(factor, count // 2)
    return half * half * factor if count % 2 else half * half


def _ordinary(builder: Any, call: Any) -> Any:
    return call.op.get_attr("FLegalize")(builder, call)


LEGALIZERS: Final = {_TAKE: _take, _POWER: _power}
