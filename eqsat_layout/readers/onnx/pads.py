"""``Pad`` by amounts that are made of sizes, which TVM's frontend does not take: pictures filled up to whole windows.

In: a node's inputs and attributes. Out: its result, in Relax; :class:`EqsatError` for what is not done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tvm import ir, relax, te, tirx

from eqsat_layout.errors import EqsatError


def is_of_sizes(kind: str, inputs: Any) -> bool:
    """Whether a node is converted here."""
    return kind == "Pad" and len(inputs) > 1 and isinstance(inputs[1], relax.ShapeExpr)


def converted(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """The result of such a node."""
    x, pads, value, axes = [*inputs, None, None][:4]
    mode = attributes.get("mode", b"constant").decode()
    if mode != "constant" and mode not in _PLACES:
        raise EqsatError(f"pads that are made of sizes with mode={mode} are not done")
    if axes is not None and not isinstance(axes, ir.GenericConst):
        raise EqsatError("pads of axes that are known at run time only are not done")
    rank = len(x.ty.shape.values)
    along = range(rank) if axes is None else [int(axis) % rank for axis in axes.value.numpy()]
    zero = tirx.IntImm("int64", 0)
    before, after = [zero] * rank, [zero] * rank
    for at, axis in enumerate(along):
        before[axis], after[axis] = pads.values[at], pads.values[at + len(along)]

    def padded(data: Any, *filling: Any) -> Any:
        shape = [one + extent + other for one, extent, other in zip(before, data.shape, after, strict=True)]

        def element(*place: Any) -> Any:
            own = [i - one for i, one in zip(place, before, strict=True)]
            if mode != "constant":
                return data(*(_PLACES[mode](i, extent) for i, extent in zip(own, data.shape, strict=True)))
            inside = [tirx.all(i >= 0, i < extent) for i, extent in zip(own, data.shape, strict=True)]
            fill = filling[0](*[0] * len(filling[0].shape)) if filling else tirx.const(0, data.dtype)
            return tirx.if_then_else(tirx.all(*inside), data(*own), fill)

        return te.compute(shape, element)

    return builder.emit_te(padded, x, *([] if value is None else [value]), primfunc_name_hint="pad")


def _reflected(at: Any, extent: Any) -> Any:
    """Without the border twice."""
    own = tirx.Select(at < 0, 0 - at, at)
    return tirx.Select(own >= extent, 2 * extent - 2 - own, own)


_PLACES: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "edge": lambda at, extent: tirx.max(tirx.min(at, extent - 1), 0),
    "reflect": _reflected,
}
"""Which element is read, by the place of a result."""
