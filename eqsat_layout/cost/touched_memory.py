"""How much of what formats hold a kernel touches: padding that it runs through, and lines of memory that it reads.

In: a computation and the formats of its operands and results. Out: a factor.
"""

from __future__ import annotations

import math

from eqsat_layout.cost.addresses import address_step, place_variables
from eqsat_layout.maps import Format, Formats
from eqsat_layout.tir.affine import Affine
from eqsat_layout.tir.computation import SYMBOL_SIZE, Computation, assumed_size


def padded_work(computation: Computation, operands: Formats, results: Formats) -> float:
    """How many times the arithmetic grows because kernels run through the padding of these formats (>= 1)."""
    buffers = (*computation.operands, *computation.results)
    ratios = [
        fmt.elements() / max(1, _elements(computation, buffer))
        for buffer, fmt in zip(buffers, (*operands, *results), strict=True)
        if fmt is not None and fmt.is_padded
    ]
    return max(1.0, *ratios) if ratios else 1.0


def touched_share(computation: Computation, buffer: int, fmt: Format, line: int) -> float:
    """The share of an operand's memory that is read, in (0, 1]: less than 1 where strides step over whole lines of it.

    ``line``: elements of one; those between others that are read come along. 1 where an address can't be told.
    """
    question = ("touched", buffer, fmt, line)
    if question not in computation.derived:
        computation.derived[question] = _touched_share(computation, buffer, fmt, line)
    share: float = computation.derived[question]
    return share


def _touched_share(computation: Computation, buffer: int, fmt: Format, line: int) -> float:
    elements = fmt.elements(SYMBOL_SIZE)
    touched = 0
    for block in computation.blocks:
        for read in block.reads:
            if read.buffer == buffer:
                if not all(isinstance(index, Affine) for index in read.indices):
                    return 1.0
                own = [v for v in place_variables(read) if block.extents[v] != 1]
                count = math.prod(assumed_size(block.extents[v]) for v in own)
                if count < elements:
                    steps = [abs(address_step(block, read, fmt, v, 1, 1) or line) for v in own]
                    count *= min(line, min(steps, default=1))
                touched += count
    return min(1.0, touched / elements) if touched and elements else 1.0


def _elements(computation: Computation, buffer: int) -> int:
    return math.prod(map(assumed_size, computation.buffers[buffer].shape))
