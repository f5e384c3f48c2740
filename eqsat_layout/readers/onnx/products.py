"""Products of ONNX.

In: a builder, both operands, TVM's converter. Out: the product, in Relax, of 0 and an infinity NaN.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from eqsat_layout.readers.layers.dtypes import without_one, zero_kept


def zero_keeping_product(builder: relax.BlockBuilder, inputs: Any, _attributes: dict[str, Any], convert: Any) -> Any:
    """``Mul``."""
    one, other = inputs
    return without_one(builder, convert(type(inputs)([zero_kept(one, other), zero_kept(other, one)])), one, other)
