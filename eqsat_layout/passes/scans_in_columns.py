"""Running sums and products along other axes than the last one, many columns at a time.

In: a call of Relax's ``cumsum`` or ``cumprod``. Out: a kernel that adds whole rows to the one before. TVM's goes down
one column after the other, in steps of a row; the order in which a column is added up is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

_COLUMNS: Final = 256
"""Of a row at a time: the row before is in the L1 cache then, and several cores have some."""

_MOST: Final = 2**31 - 1
"""Elements that 32 bits can count."""

Combine: TypeAlias = Callable[[Any, Any], Any]


def _scan(combine: Combine, neutral: int, name: str) -> Callable[[Any, Any], Any]:
    def legalized(builder: Any, call: Any) -> Any:
        (x,), attrs = call.args, call.attrs
        shape = _known(x.ty.shape)
        axis = len(shape) - 1 if attrs.axis is None or not shape else int(attrs.axis) % len(shape)
        if math.prod(shape[axis + 1 :]) == 1 or math.prod(shape) > _MOST:
            return call  # TVM makes a kernel of it later
        is_exclusive, dtype = bool(attrs.exclusive), str(call.ty.dtype)

        def compute(data: te.Tensor) -> te.Tensor:
            def body(ins: Any, outs: Any) -> Any:
                return _rows(ins[0], outs[0], shape, axis, combine, neutral, is_exclusive=is_exclusive)

            buffer = tirx.decl_buffer(data.shape, dtype, "scanned")
            return te.extern([data.shape], [data], body, dtype=dtype, out_buffers=[buffer], name=name)

        return builder.call_te(compute, x, primfunc_name_hint=name)

    return legalized


def _known(shape: Any) -> list[int]:
    """The extents; none where one is not known, or 0."""
    extents = shape.values if isinstance(shape, relax.ShapeExpr) else []
    known = [int(extent) for extent in extents if isinstance(extent, tirx.IntImm)]
    return known if len(known) == len(extents) and 0 not in known else []


def _rows(
    data: Any, out: Any, shape: list[int], axis: int, combine: Combine, neutral: int, *, is_exclusive: bool
) -> Any:
    before, steps, after = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    pieces = -(-after // _COLUMNS)
    with IRBuilder() as ib:
        source, result = T.buffer_proxy(data), T.buffer_proxy(out)
        dtype = str(out.dtype)
        with T.parallel(0, before * pieces) as at:
            first = at % pieces * _COLUMNS
            start, columns = (
                at // pieces * (steps * after) + first,
                tirx.Min(tirx.const(_COLUMNS, "int32"), after - first),
            )
            with T.serial(0, columns) as j:
                result[start + j] = tirx.const(neutral, dtype) if is_exclusive else source[start + j].astype(dtype)
            with T.serial(0, steps - 1) as k, T.serial(0, columns) as j:
                last = start + k * after + j
                here = last + after
                result[here] = combine(result[last], source[last if is_exclusive else here].astype(dtype))
        return ib.get()


SCANS: Final = {
    "relax.cumsum": _scan(lambda a, b: a + b, 0, "cumsum"),
    "relax.cumprod": _scan(lambda a, b: a * b, 1, "cumprod"),
}
