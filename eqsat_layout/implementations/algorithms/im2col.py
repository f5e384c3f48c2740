"""A convolution as one product of matrices over a gathered copy of its data (im2col).

In: a :class:`Convolution`. Out: a Relax module. The same products are added up in the same order as by the block that
it replaces; the copy is as many times larger as the window has elements.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import relax, te

from eqsat_layout.implementations.algorithms.convolution import STRETCHED, Convolution
from eqsat_layout.implementations.algorithms.graphs import (
    GraphBuilder,
    in_result_order,
    met,
    module_of,
    ordered_by,
    zero_padded,
)
from eqsat_layout.implementations.algorithms.work import Work, own_flops, own_weights


def im2col(conv: Convolution) -> tvm.IRModule | None:
    """``main(data, kernel)`` in the op's own operand order and layouts; ``None`` for windows of one element."""
    if why_not_im2col(conv) is not None:
        return None
    channels, outputs = conv.channels
    depth = channels * math.prod(conv.windows)

    def compute(builder: GraphBuilder, data: Any, kernel: Any) -> Any:
        gathered = builder.emit_kernel(lambda x: _gather(x, conv), data, name="im2col")
        columns = builder.emit(relax.op.reshape(gathered, (conv.batch, math.prod(conv.out_size), depth)))
        plain = builder.emit(relax.op.permute_dims(kernel, [*conv.kernel[1:], conv.kernel[0]]))
        weight = builder.emit(relax.op.reshape(plain, (depth, outputs)))
        product = builder.emit(relax.op.matmul(columns, weight))
        spread = builder.emit(relax.op.reshape(product, (conv.batch, *conv.out_size, outputs)))
        return in_result_order(spread, conv)

    return module_of(conv, compute)


def im2col_work(conv: Convolution) -> Work:
    """The same products, and the copy."""
    depth = conv.channels[0] * math.prod(conv.windows)
    return Work(own_flops(conv), conv.batch * math.prod(conv.out_size) * depth, own_weights(conv))


def why_not_im2col(conv: Convolution) -> str | None:
    """Why it has none; None where it has."""
    if conv.is_stretched:
        return STRETCHED
    return "its kernel has one element" if math.prod(conv.windows) == 1 else None


def _gather(data: te.Tensor, conv: Convolution) -> te.Tensor:
    before, after = zip(*conv.padding, strict=True)
    around = zero_padded(data, conv, before, after, "im2col_pad")
    count = len(conv.windows)

    def element(n: Any, *indices: Any) -> Any:
        places, c, taps = indices[:count], indices[count], indices[count + 1 :]
        return around(*ordered_by(conv.data, (n, c, *met(conv, places, taps))))

    return te.compute((conv.batch, *conv.out_size, conv.channels[0], *conv.windows), element, name="im2col")
