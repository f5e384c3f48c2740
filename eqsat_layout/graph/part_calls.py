"""Views, pads and crops as the Relax ops that say them.

In: a part of an op. Out: names of Relax ops with the attributes that make it, as plain values; none where it takes
more than one op.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_layout.graph.borders import Border, Part
from eqsat_layout.graph.op_calls import Attribute
from eqsat_layout.maps import IndexMap


@dataclass(frozen=True)
class PartCall:
    """``defaults``: attributes that are as if nothing were said of them."""

    name: str
    attributes: dict[str, Attribute]
    defaults: tuple[str, ...] = ()


def part_calls(part: Part) -> list[PartCall]:
    """The ops; a view may be a reshape and a permutation at once, where axes of extent 1 move."""
    found = _view_calls(part) if isinstance(part, IndexMap) else [_border_call(part)]
    symbolic = [*part.shape, *part.result_shape]
    return found if all(isinstance(e, int) for e in symbolic) else [c for c in found if c.name == "relax.permute_dims"]


def _view_calls(view: IndexMap) -> list[PartCall]:
    axes = view.permuted_axes
    found = []
    if axes is not None:
        is_usual = list(axes) == list(range(len(axes)))[::-1]
        found.append(PartCall("relax.permute_dims", {"axes": list(axes)}, ("axes",) if is_usual else ()))
    if view.keeps_order:
        found.append(PartCall("relax.reshape", {"shape": [e for e in view.result_shape if isinstance(e, int)]}))
    return found


def _border_call(border: Border) -> PartCall:
    if border.fill is None:
        cut = [(i, lo, hi) for i, (lo, hi) in enumerate(border.widths) if lo or hi]
        wide = border.wide_shape
        ends = [e - hi for i, _, hi in cut if isinstance(e := wide[i], int)]
        attributes: dict[str, Attribute] = {"axes": [i for i, _, _ in cut], "begin": [lo for _, lo, _ in cut]}
        whole: dict[str, Attribute] = {"strides": None, "assume_inbound": False}
        return PartCall("relax.strided_slice", {**attributes, "end": [*ends], **whole}, tuple(whole))
    widths: list[Attribute] = [n for pair in border.widths for n in pair]
    attributes = {"pad_width": widths, "pad_value": border.fill, "pad_mode": "constant"}
    return PartCall("relax.nn.pad", attributes, ("pad_mode", *([] if border.fill else ["pad_value"])))
