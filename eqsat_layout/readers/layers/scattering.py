"""Elements put along an axis, as torch and ONNX mean it: there may be fewer indices than data along the other axes too.

In: data, indices, and as many updates. Out: the data with other elements. TVM's kernel takes the indices for those of a
tensor as wide as the data, and puts what fewer give in other places.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import relax, tirx

from eqsat_layout.errors import EqsatError

_OF_TRUTH: Final = {"add": "max", "mul": "min", "max": "max", "min": "min"}
"""What a reduction is of booleans, which TVM's kernel does not take: that of bytes."""


def scattered(
    builder: relax.BlockBuilder, data: Any, indices: Any, updates: Any, axis: int, reduction: str = "update"
) -> Any:
    """``data`` with ``updates`` at ``indices`` along ``axis``. :class:`EqsatError` where it is not known which of data
    and indices is wider."""
    if str(data.ty.dtype) == "bool" and reduction in _OF_TRUTH:
        data, updates = (builder.emit(relax.op.astype(one, "int8")) for one in (data, updates))
        made = scattered(builder, data, indices, updates, axis, _OF_TRUTH[reduction])
        return builder.emit(relax.op.astype(made, "bool"))
    own, asked = list(data.ty.shape.values), list(indices.ty.shape.values)
    if not own:
        raise EqsatError("elements put into a single number are not done")
    along = axis % len(own)
    narrow = [a for a in range(len(own)) if a != along and str(own[a]) != str(asked[a])]
    if not all(isinstance(extent, int | tirx.IntImm) for a in narrow for extent in (own[a], asked[a])):
        raise EqsatError("indices that may be fewer than the data along an axis of unknown size are not done")
    part = _ends(builder, data, {a: (0, asked[a]) for a in narrow})
    made = builder.emit(relax.op.scatter_elements(part, indices, updates, along, reduction))
    for place, a in enumerate(narrow):
        rest = {a: (asked[a], own[a])} | {other: (0, asked[other]) for other in narrow[place + 1 :]}
        made = builder.emit(relax.op.concat([made, _ends(builder, data, rest)], a))
    return made


def _ends(builder: relax.BlockBuilder, data: Any, bounds: dict[int, tuple[Any, Any]]) -> Any:
    """A part of ``data`` between bounds of some axes."""
    if not bounds:
        return data
    begin, end = zip(*bounds.values(), strict=True)
    return builder.emit(relax.op.strided_slice(data, list(bounds), list(begin), list(end), assume_inbound=True))
