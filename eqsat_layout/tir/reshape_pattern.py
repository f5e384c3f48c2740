"""Whether a PrimFunc copies a tensor element by element in its order: a reshape, for TVM.

In: a PrimFunc. Out: true, false, or None where TVM's analysis ends in an error of its own, as for what repeats along
one axis where another one is of ``n + 3``.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax


def reshape_pattern(function: Any) -> bool | None:
    """Of a function of blocks."""
    try:
        return bool(relax.analysis.has_reshape_pattern(function))
    except tvm.error.InternalError:
        return None
