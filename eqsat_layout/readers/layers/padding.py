"""Borders that are as wide as the sizes of a program make them: pictures filled up to whole windows.

In: data, and by axis how much is put before and after it; below 0 is cut off. Out: the result, in Relax.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tvm import relax, te, tirx


def padded(
    builder: relax.BlockBuilder, x: Any, before: Sequence[Any], after: Sequence[Any], mode: str, value: Any = None
) -> Any:
    """``value``: a tensor of one element, 0 where it is None."""

    def made(data: Any, *filling: Any) -> Any:
        shape = [one + extent + other for one, extent, other in zip(before, data.shape, after, strict=True)]

        def element(*place: Any) -> Any:
            own = [i - one for i, one in zip(place, before, strict=True)]
            if mode != CONSTANT:
                return data(*(PLACES[mode](i, extent) for i, extent in zip(own, data.shape, strict=True)))
            inside = [tirx.all(i >= 0, i < extent) for i, extent in zip(own, data.shape, strict=True)]
            fill = filling[0](*[0] * len(filling[0].shape)) if filling else tirx.const(0, data.dtype)
            return tirx.if_then_else(tirx.all(*inside), data(*own), fill)

        return te.compute(shape, element)

    return builder.emit_te(made, x, *([] if value is None else [value]), primfunc_name_hint="pad")


def _reflected(at: Any, extent: Any) -> Any:
    """Without the border twice."""
    own = tirx.Select(at < 0, 0 - at, at)
    return tirx.Select(own >= extent, 2 * extent - 2 - own, own)


CONSTANT: Final = "constant"

PLACES: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "edge": lambda at, extent: tirx.max(tirx.min(at, extent - 1), 0),
    "reflect": _reflected,
}
"""Which element is read, by the place of a result, in the modes that read one."""
