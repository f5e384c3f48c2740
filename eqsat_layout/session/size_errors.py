"""Sizes that do not fit together, which a program finds out while it runs.

In: what TVM's machine raises, and the tensors of that run. Out: an error that names them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from eqsat_layout.errors import InputError
from eqsat_layout.session.interface import TensorSpec, type_text

_MISMATCH: Final = re.compile(
    r"\((?P<got>-?\d+) vs\. (?P<wanted>-?\d+)\)"
    r".*ErrorContext\((?:match_cast, ty|fn=\w+, loc=param\[\d+\], param=(?P<param>.*?), annotation)=(?P<type>.*)\)"
    r"\s+match_cast error,\s+shape\[(?P<axis>\d+)\]",
    re.DOTALL,
)


def size_error(error: RuntimeError, specs: Sequence[TensorSpec], tensors: Sequence[Any]) -> InputError | None:
    """Where a size of a tensor is another one than the program needs it to be; ``None`` for any other ``error``."""
    found = _MISMATCH.search(str(error))
    if found is None:
        return None
    given = ", ".join(
        f"{spec.name!r} is {type_text(tuple(map(int, tensor.shape)), spec.dtype)}"
        for spec, tensor in zip(specs, tensors, strict=True)
    )
    which = f"a tensor {found['type']} inside" if found["param"] is None else f"{found['param']!r}, {found['type']},"
    what = f"axis {found['axis']} of {which} is {found['got']}, not {found['wanted']}"
    if found["type"].startswith("R.Shape([0]"):  # as passes/fitting_sizes.py writes it
        what = f"sizes inside that have to be equal are not: tensors differ by {abs(int(found['got']))} elements"
    return InputError(f"the inputs do not fit together: where {given}, {what}")
