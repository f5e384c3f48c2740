"""RMS norm and layer norm, with a residual sum before them.

In: a node's inputs and attributes. Out: its results, in Relax.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tvm import relax

from eqsat_layout.readers.onnx.contrib.operands import (
    EmittedOps,
    Maker,
    operand_shape,
    refuse_other_results,
    results_of,
)


def _rms(op: EmittedOps, x: Any, scale: Any, attributes: dict[str, Any]) -> Any:
    """RMS norm, computed in float32, as ONNX Runtime does."""
    axes = list(range(int(attributes.get("axis", -1)) % len(operand_shape(x)), len(operand_shape(x))))
    wide = op.floats(x)
    mean = op.mean(op.multiply(wide, wide), axes, keepdims=True)
    made = op.multiply(wide, op.rsqrt(op.add(mean, relax.const(float(attributes.get("epsilon", 1e-5)), "float32"))))
    return op.multiply(op.like(made, scale), scale)


def _rms_norm(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    return results_of([_rms(op, inputs[0], inputs[1], attributes)], attributes)


def _skip_norm(is_simplified: bool) -> Callable[..., Any]:
    def make(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
        x, skip, gamma = inputs[:3]
        beta, bias = (None, inputs[3]) if is_simplified else inputs[3:5]
        whole = op.add(x, skip)
        if bias is not None:
            whole = op.add(whole, bias)
        if is_simplified:
            made = _rms(op, whole, gamma, attributes)
        else:
            beta = op.zeros(gamma.ty.shape, str(gamma.ty.dtype)) if beta is None else beta
            made = op.layer_norm(whole, gamma, beta, axes=[-1], epsilon=float(attributes.get("epsilon", 1e-12)))
        refuse_other_results(attributes, 0, 3)
        return results_of([made, None, None, whole], attributes)

    return make


MAKERS: Final[dict[str, Maker]] = {
    "SimplifiedLayerNormalization": _rms_norm,
    "SkipLayerNormalization": _skip_norm(is_simplified=False),
    "SkipSimplifiedLayerNormalization": _skip_norm(is_simplified=True),
}
"""By the names of the ops."""
