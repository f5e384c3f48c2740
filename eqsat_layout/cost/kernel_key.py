"""What a kernel is known by in the database: what it computes, and in which formats.

In: a computation and formats. Out: a key, the same in every process: names, hash seeds and the order in
which a program was read are not in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from eqsat_layout.cost.measurements import KernelKey
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.maps import Format, Formats
from eqsat_layout.tir.affine import Affine
from eqsat_layout.tir.computation import Access, Computation, Index, Value

COPY: Final = "copy"
"""What copies compute, from one format to another."""


def kernel_key(computation: Computation, operands: Formats, results: Formats) -> KernelKey | None:
    """The key; ``None`` for a kernel of symbolic sizes, which has no one time, and for operands that are no tensors."""
    digest = computation_digest(computation)
    return None if digest is None else kernel_key_of(digest, operands, results)


def kernel_key_of(digest: str, operands: Formats, results: Formats) -> KernelKey | None:
    """The key of a computation whose digest is known."""
    keys = tuple(f.key for f in (*operands, *results) if f is not None)
    return KernelKey(digest, keys) if len(keys) == len(operands) + len(results) else None


def copy_key(tensor: TensorType, source: Format, target: Format) -> KernelKey | None:
    """The key of the copy of a tensor from one format to another; ``None`` for symbolic sizes."""
    if any(isinstance(extent, str) for extent in tensor.shape):
        return None
    return KernelKey(COPY, (tensor.dtype, source.key, target.key))


def computation_digest(computation: Computation) -> str | None:
    """A digest of what the kernel computes; ``None`` for symbolic sizes."""
    text = computation_text(computation)
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()[:32]


def computation_text(computation: Computation) -> str | None:
    """The computation in one spelling, without any name in it; ``None`` for symbolic sizes.

    The order of buffers, blocks and loops is the kernel's own, as they are what a schedule starts from.
    """
    shapes = [b.shape for b in computation.buffers] + [b.extents for b in computation.blocks]
    if any(isinstance(extent, str) for shape in shapes for extent in shape):
        return None
    if any(v.op == "symbol" for v in _values(computation)):
        return None
    lines = [f"{'x'.join(map(str, b.shape))} {b.dtype} {b.scope} {b.role.value}" for b in computation.buffers]
    lines.append(f"{computation.operands} {computation.results} {computation.internal}")
    for block in computation.blocks:
        lines.append(" ".join(f"{i.kind.value}:{i.extent}" for i in block.iters))
        lines += [f"init {_access(s.access)} = {_value(s.value)}" for s in block.inits]
        lines += [f"{_access(s.access)} = {_value(s.value)}" for s in block.stores]
    return "\n".join(lines)


def _values(computation: Computation) -> Iterator[Value]:
    for block in computation.blocks:
        for store in (*block.inits, *block.stores):
            yield from store.value.walk()
            for access in (store.access, *_loads(store.value), *block.reads):
                for index in access.indices:
                    if not isinstance(index, Affine):
                        yield from index.value.walk()


def _loads(value: Value) -> Iterator[Access]:
    return (v.access for v in value.walk() if v.access is not None)


def _access(access: Access) -> str:
    return f"b{access.buffer}[{', '.join(map(_index, access.indices))}]"


def _index(index: Index) -> str:
    if not isinstance(index, Affine):
        return _value(index.value)
    terms = [f"{weight}*(i{axis}/{stride}%{extent})" for weight, axis, stride, extent in index.terms]
    return " + ".join([*terms, str(index.constant)])


def _value(value: Value) -> str:
    if value.access is not None:
        return _access(value.access)
    if value.op == "iter":
        return f"i{value.literal}"
    literal = f" {value.literal!r}" if value.literal != "" else ""
    return f"{value.op}:{value.dtype}{literal}({', '.join(map(_value, value.args))})"
