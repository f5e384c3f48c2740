"""NumPy's dtypes by the names that programs have for them.

In: a name. Out: a dtype. Nothing here needs TVM: programs of devices run where there is none.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def numpy_dtype(dtype: str) -> Any:
    """NumPy's own, or one of those that ``ml_dtypes`` adds to it. ``AttributeError`` or ``TypeError`` for none."""
    try:
        return np.dtype(dtype)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype))
