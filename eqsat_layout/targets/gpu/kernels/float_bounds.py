"""The larger of two floats where one is NaN: the second in TIR, the other one in the languages of devices.

In: a PrimFunc as the code generator gets it. Out: the same with comparisons in the place of maxima and minima whose
result would differ.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tvm import ir, tirx

from eqsat_layout.tir.structural import body_pass, nodes_of

_IMAGE_LOAD: Final = ir.Op.get("tirx.texture2d_load")


def float_bounds() -> Any:
    """A pass. A bound that is a number is left: both give it for NaN, and for zeros of other signs.

    So are values that other threads give: they are not to be asked for twice, and come in an order of the kernel's own.
    """

    def bound(node: Any) -> Any:
        if is_safe(node) or any(map(_has_effects, nodes_of(node, ir.Call))):
            return node
        is_first = tirx.GT if isinstance(node, tirx.Max) else tirx.LT
        return tirx.Select(is_first(node.a, node.b), node.a, node.b)

    return body_pass("FloatBounds", ((tirx.Max, tirx.Min), bound))


def is_safe(node: Any) -> bool:
    """A maximum or minimum is of integers, or its second operand is a number: not NaN, and of zeros the one that wins
    over the other."""
    if "float" not in str(node.ty.dtype):
        return True
    bound = node.b.value if isinstance(node.b, tirx.Broadcast) else node.b
    if not isinstance(bound, tirx.FloatImm) or math.isnan(float(bound.value)):
        return False
    is_positive = math.copysign(1, float(bound.value)) > 0
    return float(bound.value) != 0 or is_positive == isinstance(node, tirx.Max)


def _has_effects(call: Any) -> bool:
    if call.op == _IMAGE_LOAD:  # TVM says nothing of its effect
        return False
    kind = call.op.get_attr("TCallEffectKind") if isinstance(call.op, ir.Op) else None
    return kind is None or kind > tirx.CallEffectKind.ReadState.value
