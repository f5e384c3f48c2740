"""When two computations are the same one: a fingerprint that does not see names, unit axes or spatial loop order.

In: a :class:`Computation`. Out: a hashable value; equal fingerprints mean the same function of the operands.
"""

from __future__ import annotations

from collections.abc import Hashable

from eqsat_layout.tir.affine import Affine
from eqsat_layout.tir.computation import Access, Block, Computation, Index, IterKind, Role, Store, Value


def fingerprint(computation: Computation) -> Hashable:
    """What ``computation`` computes, as nested tuples. The order of reductions is part of it, the dtypes are too."""
    return _Fingerprint(computation).whole()


class _Fingerprint:
    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.numbers = {n: i for i, n in enumerate((*computation.operands, *computation.results))}

    def whole(self) -> Hashable:
        blocks = tuple(self.block(b) for b in self.computation.blocks)
        buffers = self.computation.buffers
        params = tuple(
            (b.shape, b.dtype, b.scope, b.separators, b.role.value) for b in buffers if b.role is not Role.INTERNAL
        )
        internal = tuple(
            (tuple(e for e in buffers[n].shape if e != 1), buffers[n].dtype, buffers[n].scope)
            for n in self.numbers
            if buffers[n].role is Role.INTERNAL
        )
        return (params, internal, blocks)

    def block(self, block: Block) -> Hashable:
        """Spatial variables in the order in which the first store uses them, then the reduced ones as they stand."""
        seen = [i for index in block.stores[0].access.indices if isinstance(index, Affine) for i in index.iters] + list(
            range(len(block.iters))
        )
        spatial = [i for i in dict.fromkeys(seen) if block.is_spatial(i) and block.extents[i] != 1]
        reduced = [i for i, v in enumerate(block.iters) if v.kind is IterKind.REDUCE and v.extent != 1]
        numbers = {old: new for new, old in enumerate(spatial + reduced)}
        extents = tuple((block.iters[i].kind.value, block.extents[i]) for i in numbers)
        inits = tuple(self.store(s, numbers) for s in block.inits)
        return (extents, inits, tuple(self.store(s, numbers) for s in block.stores))

    def store(self, store: Store, numbers: dict[int, int]) -> Hashable:
        return (self.access(store.access, numbers), self.value(store.value, numbers))

    def access(self, access: Access, numbers: dict[int, int]) -> Hashable:
        """Internal buffers are numbered as they turn up, without their unit axes."""
        buffer = self.computation.buffers[access.buffer]
        number = self.numbers.setdefault(access.buffer, len(self.numbers))
        keep_units = buffer.role is not Role.INTERNAL
        indices = zip(access.indices, buffer.shape, strict=True)
        return (number, tuple(self.index(i, numbers) for i, extent in indices if extent != 1 or keep_units))

    def index(self, index: Index, numbers: dict[int, int]) -> Hashable:
        if isinstance(index, Affine):
            kept = Affine(tuple(t for t in index.terms if t.extent != 1), index.constant)
            return kept.renumbered(numbers)
        return self.value(index.value, numbers)

    def value(self, value: Value, numbers: dict[int, int]) -> Hashable:
        if value.access is not None:
            return ("load", self.access(value.access, numbers))
        if value.op == "iter":
            number = numbers.get(int(value.literal))
            return ("const", value.dtype, 0) if number is None else ("iter", value.dtype, number)
        return (value.op, value.dtype, value.literal, tuple(self.value(a, numbers) for a in value.args))
