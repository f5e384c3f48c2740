"""What a kernel may read or write as images, read off its blocks.

In: a computation, one of its buffers and a format of it in a texture scope. Out: ``None``, or why not. An image
is read and written by whole texels: some variable of a block has to run along the elements of a texel, and a kernel
either reads an image or writes it. Where texels lie may be computed in any way for reads, but not for writes.
"""

from __future__ import annotations

from eqsat_layout.maps import Digit, Format
from eqsat_layout.tir.affine import Affine, Term
from eqsat_layout.tir.computation import Access, Block, Computation


def why_not_read(computation: Computation, buffer: int, fmt: Format) -> str | None:
    """Why operand ``buffer`` is not read by whole texels."""
    texel = _texel(fmt)
    if texel is None:
        return "the elements of a texel lie along several axes"
    for block in computation.blocks:
        for access in block.reads:
            reason = None if access.buffer != buffer else _why_not_along(block, access, texel)
            if reason is not None:
                return f"it is read {reason}"
    return None


def why_not_written(computation: Computation, buffer: int, fmt: Format) -> str | None:
    """Why result ``buffer`` is not written by whole texels, each once, by a kernel that does not read it."""
    texel = _texel(fmt)
    if texel is None:
        return "the elements of a texel lie along several axes"
    for block in computation.blocks:
        if any(access.buffer == buffer for access in block.reads):
            return "the kernel reads what it writes"
        for access in block.writes:
            if access.buffer != buffer:
                continue
            if any(not isinstance(index, Affine) for index in access.indices):
                return "it is written at places that are not known before"
            reason = _why_not_along(block, access, texel)
            if reason is not None:
                return f"it is written {reason}"
            if not all(map(block.is_spatial, access.iters)):
                return "it is written more than once"
    return None


def _texel(fmt: Format) -> Digit | None:
    """The one digit that the elements of a texel are."""
    digits = [digit for digit in fmt.index_map.dims[-1] if digit.extent != 1]
    return digits[0] if len(digits) == 1 else None


def _why_not_along(block: Block, access: Access, texel: Digit) -> str | None:
    """Why the elements of a texel are not reached by neighbouring values of one variable, starting with the first."""
    index = access.indices[texel.axis]
    if not isinstance(index, Affine):
        return "at elements of texels that are not known before"
    if block.variable(index) is not None:
        return None  # a variable as it stands runs along any digit of the axis
    if not isinstance(texel.extent, int) or texel.stride != 1:
        return "along an axis in which the elements of a texel are no neighbours, and not from its first to its last"
    if index.constant % texel.extent:
        return "across the borders of texels"
    inner = [term for term in index.terms if term.weight % texel.extent]
    if not inner:
        return "at one element of each texel"
    if len(inner) > 1:
        return "across the borders of texels"
    return None if _covers(inner[0], texel.extent) else "with gaps between the elements of a texel"


def _covers(term: Term, extent: int) -> bool:
    """The term counts all elements of a texel, and then the texels."""
    whole = isinstance(term.extent, str) or term.extent % extent == 0
    return term.weight == 1 and term.stride == 1 and whole
