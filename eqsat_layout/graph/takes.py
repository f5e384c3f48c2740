"""Takes of a Relax program as PrimFuncs.

In: a call of ``relax.take``. Out: what TVM's own legalisation makes of it, that writes "Fast mode segfaults" to the
standard error of the process for every one that does not say what places outside are; kernels of ours look at these
first (:mod:`eqsat_layout.readers.guards.bounds`).
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import relax, te

TAKE: Final = "relax.take"
_UNSAID: Final = "fast"


def legalized(builder: Any, call: Any) -> Any:
    """The call as one of a PrimFunc."""
    axis, are_tensors = call.attrs.axis, all(isinstance(one.ty, relax.TensorType) for one in call.args)
    if call.attrs.mode != _UNSAID or axis is None or not are_tensors:
        return tvm.ir.Op.get(TAKE).get_attr("FLegalize")(builder, call)
    return builder.call_te(_taken, *call.args, int(axis) % call.args[0].ty.ndim, primfunc_name_hint="take")


def _taken(data: Any, places: Any, axis: int) -> Any:
    rest = axis + len(places.shape)

    def element(*at: Any) -> Any:
        return data(*at[:axis], places(*at[axis:rest]), *at[rest:])

    shape = [*data.shape[:axis], *places.shape, *data.shape[axis + 1 :]]
    return te.compute(shape, element, name="T_take", tag="injective")
