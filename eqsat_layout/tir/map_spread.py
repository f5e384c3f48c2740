"""Maps of buffers that follow from one another through the blocks of a computation.

In: a computation and the maps of some of its buffers. Out: maps of the others, as accesses keep in step; or why not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from eqsat_layout.maps import IndexMap
from eqsat_layout.tir.computation import Access, Block, Computation, IterKind, Role
from eqsat_layout.tir.physical_axes import MappedAccess, RefusedError
from eqsat_layout.tir.transfer import Placing, covers, transfer


@dataclass
class MapSpread:
    """Spreads maps from known buffers through the blocks until nothing new is learnt.

    ``strict``: raises :class:`RefusedError` where buffers can't be kept in step, instead of leaving them.
    ``contractions``: through them too; ``pairs``: placing what they reduce where the result has free axes.
    ``has_choice``: some map does not follow entirely. ``is_placed``: another ``placing`` may give another map,
    ``is_paired``: so may other ``pairs``.
    """

    computation: Computation
    maps: dict[int, IndexMap]
    placing: Placing
    strict: bool
    contractions: bool = False
    pairs: bool = False
    has_choice: bool = field(default=False)
    is_placed: bool = field(default=False)
    is_paired: bool = field(default=False)
    aligns: bool = field(init=False)
    _learnt: dict[int, tuple[Access, Access]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.aligns = not any(axis.kind is IterKind.REDUCE for b in self.computation.blocks for axis in b.iters)

    def run(self) -> None:
        """Extends ``maps``: with what follows entirely as long as there is any, then with one choice, and again."""
        from_result = any(self.computation.buffers[n].role is Role.RESULT for n in self.maps)
        blocks = [b for b in self.computation.blocks if self.contractions or not b.is_contraction]
        orders = (blocks[::-1], blocks) if from_result else (blocks, blocks[::-1])
        self._settle(orders)
        while not self._is_done and any(self._step(block, may_choose=True) for block in orders[0]):
            self._settle(orders)
        if self.strict:
            for block in blocks:
                self._check(block)

    @property
    def _is_done(self) -> bool:
        return len(self.maps) == len(self.computation.buffers)

    def _settle(self, orders: Sequence[Sequence[Block]]) -> None:
        known = -1
        while known < len(self.maps):
            known = len(self.maps)
            for order in orders:
                for block in order:
                    if self._is_done:
                        return
                    self._step(block, may_choose=False)

    def _step(self, block: Block, may_choose: bool) -> bool:
        """Learns what the block tells, from what it writes or else from the read that runs along most of it."""
        written = next((w for w in block.writes if w.buffer in self.maps), None)
        if written is not None:
            targets = [t for t in (*block.writes, *block.reads) if t.buffer not in self.maps]
            return any([self._learn(block, written, target, may_choose) for target in targets])
        reads = [r for r in block.reads if r.buffer in self.maps]
        reads.sort(key=lambda r: -_moving_count(block, r))
        return any(self._learn(block, read, block.writes[0], may_choose) for read in reads)

    def _learn(self, block: Block, source: Access, target: Access, may_choose: bool) -> bool:
        if target.buffer in self.maps:
            return False
        follows = covers(block, source, target, self.computation.buffers[target.buffer].shape)
        if not (follows or may_choose):
            return False
        self.has_choice |= not follows
        try:
            self.maps[target.buffer] = self._transfer(block, source, target)
            self._learnt[target.buffer] = source, target
        except RefusedError:
            if self.strict:
                raise
            return False
        return True

    def _transfer(self, block: Block, source: Access, target: Access) -> IndexMap:
        buffers = self.computation.buffers
        known = MappedAccess(source, buffers[source.buffer].shape, self.maps[source.buffer])
        pairs = self._pairs(block, source, target)
        made = transfer(
            block, known, target, buffers[target.buffer], placing=self.placing, aligns=self.aligns, pairs=pairs
        )
        self.is_placed |= made.is_placed
        self.is_paired |= made.is_paired
        if isinstance(made.found, RefusedError):
            raise RefusedError(made.found.reason, made.found.buffer)
        return made.found

    def _pairs(self, block: Block, source: Access, target: Access) -> dict[int, int]:
        """The variables of ``target`` that take the places of variables of ``source``."""
        known = block.pairs if self.pairs and block.is_contraction else ()
        towards = {s: r for s, r, operand in known if operand == target.buffer and source in block.writes}
        return towards or {r: s for s, r, operand in known if operand == source.buffer and target in block.writes}

    def _check(self, block: Block) -> None:
        """Refuses two demands on one operand."""
        written = next((w for w in block.writes if w.buffer in self.maps), None)
        for read in block.reads if written is not None else ():
            assert written is not None
            buffer = self.computation.buffers[read.buffer]
            known = self.maps.get(read.buffer)
            if known is None or buffer.role is Role.INTERNAL or not covers(block, written, read, buffer.shape):
                continue
            source, target = self._learnt.get(read.buffer, (None, None))
            if source is written and target is read:  # it is what this access asks for
                continue
            if _full_axes(known) != _full_axes(self._transfer(block, written, read)):
                raise RefusedError("it is read in two ways that ask for different maps", read.buffer)


def _moving_count(block: Block, read: Access) -> int:
    """How many of the block's spatial variables the read runs along."""
    return sum(block.is_spatial(i) and block.extents[i] != 1 for i in read.iters)


def _full_axes(index_map: IndexMap) -> tuple[object, ...]:
    return tuple(digits for digits in index_map.dims if digits)
