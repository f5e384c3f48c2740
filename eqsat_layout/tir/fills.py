"""Fills of padding through computations: what scalar functions make of them, and which ones make a wanted one.

In: a :class:`Computation`, formats whose paddings are known, and some of the fills. Out: all fills, chosen so that the
blocks run with as few conditions as possible.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from eqsat_layout.maps import UNDEF, Fill, Format, exact_fill
from eqsat_layout.tir.computation import Block, Computation, Value
from eqsat_layout.tir.padding import plan_block, produced_fills
from eqsat_layout.tir.scalar_values import ANYTHING, FINITE, Scalar, UnsafeError, as_held
from eqsat_layout.tir.scalars import Evaluator

MOST_CANDIDATES = 5
MOST_TUPLES = 24


def evaluate_fill(value: Value, fills: Mapping[int, Fill], dtypes: Sequence[str]) -> Fill:
    """What the scalar function ``value`` gives where a load from buffer ``b`` gives ``fills[b]``, exactly.

    ``dtypes[b]`` is the dtype of buffer ``b``. :data:`UNDEF` where that depends on anything else than numbers (undef
    fills, buffers that are missing, iteration variables, symbols), is not exact in every arithmetic, or may fault.
    """

    def load(access: object, guarded: bool) -> Scalar:
        number = getattr(access, "buffer", -1)
        fill = fills.get(number)
        exact = as_held(fill, dtypes[number]) if isinstance(fill, int | float) else None
        return ANYTHING if exact is None else exact

    iterations = [FINITE] * (1 + max((int(v.literal) for v in value.walk() if v.op == "iter"), default=0))
    try:
        found = Evaluator(load, iterations).value(value)
    except UnsafeError:
        return UNDEF
    return exact_fill(float(found)) if isinstance(found, int | float) else UNDEF


def pointwise_fill(computation: Computation, operand: int, number: float) -> Fill:
    """What operand number ``operand`` makes of the result's elements where it is ``number`` itself.

    A number if the computation is one elementwise block in which the two run together and nothing else matters there,
    else :data:`UNDEF`.
    """
    source = computation.operands[operand]
    if len(computation.blocks) != 1 or len(computation.results) != 1:
        return UNDEF
    (block,) = computation.blocks
    (store,) = block.stores if len(block.stores) == 1 else (None,)
    together = store is not None and all(map(block.is_spatial, range(len(block.iters))))
    reads = [read for read in block.reads if read.buffer == source]
    if not together or store is None or not reads or any(r.indices != store.access.indices for r in reads):
        return UNDEF
    if computation.buffers[source].shape != computation.buffers[store.access.buffer].shape:
        return UNDEF  # a part of the operand: the border of that is another
    return evaluate_fill(store.value, {source: number}, [b.dtype for b in computation.buffers])


def constants_in(block: Block) -> tuple[float, ...]:
    """The numbers in what the block stores, in the order of their appearance."""
    values = (v for store in (*block.stores, *block.inits) for v in store.value.walk() if v.op == "const")
    return tuple(dict.fromkeys(exact_fill(n) for v in values if (n := as_held(v.number, v.dtype)) is not None))


def fills_for(
    computation: Computation, formats: Mapping[int, Format], wanted: int, fill: Fill
) -> tuple[dict[int, Fill], ...]:
    """Fills of all padded buffers under which buffer ``wanted`` (a result) is padded with ``fill``, best first.

    The second one, if there is a second, asks nothing of the operands.
    """
    choice = _FillChoice(computation, formats, {wanted: fill})
    operands = [n for n in computation.operands if formats[n].is_padded]
    best = choice.cheapest(operands, _candidates(computation, fill))
    weakest = choice.weakest(operands)
    return (best,) if best == weakest else (best, weakest)


def fills_from(
    computation: Computation, formats: Mapping[int, Format], given: int, fill: Fill
) -> tuple[dict[int, Fill], ...]:
    """Fills of all padded buffers when operand ``given`` is padded with ``fill``, best first.

    The second one, if there is a second, asks nothing of the other operands.
    """
    choice = _FillChoice(computation, formats, {given: fill})
    others = [n for n in computation.operands if formats[n].is_padded and n != given]
    if not others or fill is UNDEF:
        return (choice.weakest(others),)
    best = choice.cheapest(others, _candidates(computation, fill))
    weakest = choice.weakest(others)
    return (best,) if best == weakest else (best, weakest)


def internal_fills(computation: Computation, formats: Mapping[int, Format]) -> dict[int, Fill]:
    """Fills of the padded internal buffers, given the formats of the others."""
    public = (*computation.operands, *computation.results)
    return _FillChoice(computation, formats, {n: formats[n].fill for n in public}).weakest(())


def _candidates(computation: Computation, fill: Fill) -> tuple[float, ...]:
    """The numbers that are tried as fills."""
    first = [exact_fill(float(fill))] if isinstance(fill, int | float) else []
    found = (c for block in computation.blocks for c in constants_in(block))
    return tuple(dict.fromkeys((*first, 0.0, 1.0, *found)))[:MOST_CANDIDATES]


class _FillChoice:
    """Fills under some that are given: those of operands are chosen, those of other buffers follow."""

    def __init__(self, computation: Computation, formats: Mapping[int, Format], given: Mapping[int, Fill]) -> None:
        self.computation = computation
        self.given = given
        self.formats = [f.with_fill(given.get(n, UNDEF)) for n, f in sorted(formats.items())]
        # whatever is given: what blocks cost and produce where their buffers have these paddings
        known = computation.derived.setdefault(("blocks", *(f.padding for f in self.formats)), ({}, {}))
        self._costs: dict[tuple[int, tuple[Fill, ...]], float] = known[0]
        self._produced: dict[tuple[int, tuple[Fill, ...]], tuple[Fill, ...]] = known[1]

    def cheapest(self, numbers: Sequence[int], candidates: Sequence[float]) -> dict[int, Fill]:
        """The fills of lowest cost; among equals those that ask least. ``numbers`` are the operands to choose for."""
        best: tuple[float, dict[int, Fill]] | None = None
        for fills in _tuples(numbers, candidates):
            if not self._can_hold(fills):
                continue
            filled = self._filled(fills)
            cost = self._cost(filled)
            if best is None or cost < best[0]:
                best = cost, filled
            if cost == 0:
                break
        assert best is not None, "undef can always be held"
        return self._improved(best[1])

    def weakest(self, numbers: Sequence[int]) -> dict[int, Fill]:
        """The fills that ask nothing of the operands ``numbers``."""
        return self._improved(self._filled(dict.fromkeys(numbers, UNDEF)))

    def _improved(self, fills: dict[int, Fill]) -> dict[int, Fill]:
        """Writes numbers into internal padding of which nothing would be known, where that saves later conditions."""
        for number in self.computation.internal:
            if fills.get(number) is UNDEF:
                choices: tuple[Fill, ...] = (UNDEF, 0.0, 1.0, *self._starts(number))
                tried: list[dict[int, Fill]] = [{**fills, number: fill} for fill in choices]
                fills = min((t for t in tried if self._can_hold(t)), key=self._block_cost)
        return fills

    def _filled(self, operands: Mapping[int, Fill]) -> dict[int, Fill]:
        """All fills, given those of the operands: what blocks produce of them."""
        fills: dict[int, Fill] = {**self.given, **operands}
        for number, block in enumerate(self.computation.blocks):
            if not all(w.buffer in fills for w in block.writes):
                for access, fill in zip(block.writes, self._results(number, block, fills), strict=True):
                    fills.setdefault(access.buffer, fill)
        return {n: fills.get(n, UNDEF) for n, f in enumerate(self.formats) if f.is_padded}

    def _starts(self, number: int) -> list[float]:
        """What the reductions over a buffer start from, which is often neutral to them."""
        readers = [b for b in self.computation.blocks if any(r.buffer == number for r in b.reads)]
        return [exact_fill(v.number) for b in readers for s in b.inits for v in s.value.walk() if v.op == "const"]

    def _cost(self, fills: Mapping[int, Fill]) -> float:
        """Points at which blocks test a condition; a forward flow pays for results of which nothing is known."""
        unknown = sum(
            fills[n] is UNDEF for n in self.computation.results if n not in self.given and self.formats[n].is_padded
        )
        return self._block_cost(fills) + unknown * self.computation.iterations * 4

    def _block_cost(self, fills: Mapping[int, Fill]) -> float:
        return sum(self._cost_of(number, block, fills) for number, block in enumerate(self.computation.blocks))

    def _cost_of(self, number: int, block: Block, fills: Mapping[int, Fill]) -> float:
        key = (number, self._seen(block, fills))
        if key not in self._costs:
            plan = plan_block(self.computation, block, self._with(fills))
            self._costs[key] = block.iterations * (bool(plan.masked) + 2 * bool(plan.exact))
        return self._costs[key]

    def _results(self, number: int, block: Block, fills: Mapping[int, Fill]) -> tuple[Fill, ...]:
        key = (number, self._seen(block, fills))
        if key not in self._produced:
            self._produced[key] = produced_fills(self.computation, block, self._with(fills))
        return self._produced[key]

    def _seen(self, block: Block, fills: Mapping[int, Fill]) -> tuple[Fill, ...]:
        """What a block sees of the fills."""
        return tuple(fills.get(a.buffer) for a in (*block.writes, *block.reads))

    def _with(self, fills: Mapping[int, Fill]) -> list[Format]:
        return [f.with_fill(fills.get(n, UNDEF)) for n, f in enumerate(self.formats)]

    def _can_hold(self, fills: Mapping[int, Fill]) -> bool:
        buffers = self.computation.buffers
        numbers = ((n, f) for n, f in fills.items() if isinstance(f, int | float))
        return all(as_held(f, buffers[n].dtype) == f for n, f in numbers if n not in self.given)


def _tuples(numbers: Sequence[int], candidates: Sequence[float]) -> Iterator[dict[int, Fill]]:
    """Undef, then the same number for all, then any."""
    yield dict.fromkeys(numbers, UNDEF)
    for number in candidates:
        yield dict.fromkeys(numbers, number)
    if len(numbers) > 1:
        choices: Sequence[Fill] = (*candidates, UNDEF)
        mixed = (t for t in itertools.product(choices, repeat=len(numbers)) if len(set(t)) > 1)
        for fills in itertools.islice(mixed, MOST_TUPLES):
            yield dict(zip(numbers, fills, strict=True))
