"""A transposed convolution without strides as the convolution that it is: its windows are flipped, once.

In: a :class:`Convolution`. Out: a Relax module. The weights of a network are flipped when it is compiled.
"""

from __future__ import annotations

from functools import partial

import tvm

from eqsat_layout.implementations.algorithms.convolution import STRETCHED, Convolution
from eqsat_layout.implementations.algorithms.graphs import convolved, module_of


def upright(conv: Convolution) -> tvm.IRModule | None:
    """``main(data, kernel)`` in the op's own operand order and layouts; ``None`` where no window is flipped."""
    if why_not_upright(conv) is not None:
        return None
    name = "upright_convolution"
    compute = partial(convolved, conv=conv, name=name)
    return module_of(conv, lambda builder, *operands: builder.emit_kernel(compute, *operands, name=name))


def why_not_upright(conv: Convolution) -> str | None:
    """Why it has none; None where it has."""
    if conv.is_stretched:
        return STRETCHED
    return None if any(conv.flipped) else "its windows are not flipped"
