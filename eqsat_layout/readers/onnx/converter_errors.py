"""What TVM's converters of nodes say when they fail, in the words of the model.

In: what was raised and the operands. Out: why the node is not done.
"""

from __future__ import annotations

import traceback
from typing import Any

import tvm
from tvm.relax.frontend.onnx import onnx_frontend

from eqsat_layout.notes import first_line, said_by


def said_of_failure(error: Exception, operands: Any) -> str:
    """A converter that wants a constant looks into its value, whatever it is given."""
    if isinstance(error, KeyError):
        return f"without {error}, which is read of it, is not done"
    said = said_by(error)
    if isinstance(error, AttributeError) and said.endswith("object has no attribute 'value'"):
        return f"with an operand that must be constant is not done{_known_late(operands)}"
    if isinstance(error, AttributeError | TypeError | IndexError | AssertionError):
        said = f"TVM's converter fails with such operands or attributes ({first_line(error)})"
    elif traceback.extract_tb(error.__traceback__)[-1].filename != onnx_frontend.__file__:
        return said
    return f"{said}{_known_late(operands)}"


def _known_late(operands: Any) -> str:
    """The sizes among the operands that are tensors: a converter that refuses by itself most often wants numbers."""
    late = [
        f"{at} ({one.name})"
        for at, one in enumerate(operands)
        if isinstance(one, tvm.relax.Var) and isinstance(one.ty, tvm.relax.TensorType) and at and one.ty.ndim in (0, 1)
    ]
    return f"; known at run time only: operand {', '.join(late)}" if late else ""
