"""Which layouts flow through an op, and its variants that they give.

In: questions of rules about a format of a result or of an operand. Out: rows of variants, each question answered once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_layout.egraph.flows import Spokesman
from eqsat_layout.egraph.names import Names
from eqsat_layout.egraph.part_answers import AnswerRow, PartAnswers
from eqsat_layout.graph.graph import Signature
from eqsat_layout.implementations.blocked_formats import free_formats, moves_whole_axes
from eqsat_layout.implementations.offers import Offers
from eqsat_layout.maps import Format
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.flow import Flow, backward, complete, forward, in_step_with_result, placed, why_not
from eqsat_layout.tir.placement import FLAT, Placement, in_flat_memory, why_not_placed

_MOST_FREE = 4
"""Formats per buffer that a contraction is offered in because neighbours ask for them; all combinations are made."""

_MOST_MET = 8
"""Formats from each side that meet at an op within an alternative graph."""

_MANY_OPERANDS = 4
"""From here on a flow that one operand gave answers for the others too: a wide concat would ask for each of them.

So it does for several results: each is wanted in the format that a flow from one of them gives it.
"""


@dataclass(frozen=True)
class RefusedFormat:
    """A format that can't go through an op, from its result (number) or from its operand."""

    signature: Signature
    format: Format
    result: int | None
    operand: int | None
    spokesman: Spokesman | None = None
    placement: Placement = FLAT

    @property
    def reason(self) -> str:
        """Why, in words; worked out when asked for."""
        if self.spokesman is not None:
            return self.spokesman.why_not(self.format)
        if self.signature.frozen is not None:
            return "it is frozen to other layouts"
        if self.signature.computation is None:
            return "its TIR is not understood"
        reason = why_not(
            self.signature.computation,
            self.format,
            result=self.result,
            operand=self.operand,
            placement=self.placement,
        )
        return reason or "it can, after all"


class FlowAnswers(PartAnswers):
    """What row-major gives is answered by ``impls`` once, never derived.

    ``max_formats`` bounds the formats that flowing may make per tensor shape, so that a program whose layouts chase
    each other in circles stays finite; what was refused is counted in ``refused``. ``spokesmen`` are the user's flow
    callbacks by signature; the analysis is not asked where there is one.
    """

    def __init__(
        self,
        signatures: Mapping[str, Signature],
        names: Names,
        max_formats: int = 32,
        spokesmen: Mapping[str, Spokesman] | None = None,
        offers: Offers | None = None,
    ):
        super().__init__(names)
        self._offers = offers or Offers()
        self._free: dict[str, list[list[Format]]] = {}
        self._spokesmen = spokesmen or {}
        self._signatures = signatures
        self._max_formats = max_formats
        self._formats_of_shape: dict[tuple[Any, ...], set[str]] = {}
        self._known: dict[tuple[str, int, str], list[tuple[str, list[AnswerRow]]]] = {}
        """By op, operand or (after them) result and its format: what flows that are known say of it."""
        self._flat: dict[tuple[str, int, str], tuple[Flow, ...]] = {}
        """By op, operand or (after them) result and its format in flat memory: the flows from it."""
        self.folded: frozenset[str] = frozenset()
        """Ops that nobody runs, in any layout: their results are constants."""
        self.refused = 0
        self.refusals: list[RefusedFormat] = []

    def answer_back(self, key: str, result: str) -> list[AnswerRow]:
        """Variants that write the (only) result in the format asked for."""
        signature = self._signatures.get(key)
        if signature is None or signature.is_tuple:
            return []
        return [row for _, rows in self._flows(signature, result, result=0) for row in rows]

    def answer_results(self, key: str, index: int, result: str) -> list[AnswerRow]:
        """Variants of an op with several results that write result ``index`` in the format asked for."""
        signature = self._signatures.get(key)
        found = [] if signature is None else self._flows(signature, result, result=index)
        return [row for name, rows in found for row in (("results", (key, index, result, name)), *rows)]

    def answer_fwd(self, key: str, operand: int, fmt: str) -> list[AnswerRow]:
        """Variants that read operand ``operand`` in the format asked for."""
        signature = self._signatures.get(key)
        found = [] if signature is None else self._flows(signature, fmt, operand=operand)
        return [row for name, rows in found for row in (("fwd", (key, operand, fmt, name)), *rows)]

    def _flows(
        self, signature: Signature, name: str, *, result: int | None = None, operand: int | None = None
    ) -> list[tuple[str, list[AnswerRow]]]:
        """What the op writes, and the rows of the variant, for each flow from the format called ``name``."""
        fmt = self._names.formats.get(name)
        if fmt is None or fmt.is_row_major or signature.parts or fmt == _frozen_format(signature, result, operand):
            return []
        if signature.key in self.folded:
            return []
        number = len(signature.operands) + (result or 0) if operand is None else operand
        if (signature.key, number, name) in self._known:
            return self._known[signature.key, number, name]
        spokesman = self._spokesmen.get(signature.key)
        flows = self._placed_flows(signature, fmt, result, operand)
        if not flows:
            placement = self._offers.placement
            self.refusals.append(RefusedFormat(signature, fmt, result, operand, spokesman, placement))
        side = f"result {result}" if operand is None else f"operand {operand}"
        origin = f"layout flows {'backward' if operand is None else 'forward'} from {side}"
        flows = tuple(flow for flow in flows if _gives_symbols(signature, flow) and _moves(flow))
        allowed = [self._variant_rows(signature.key, flow, origin) for flow in flows if self._allowed(flow)]
        return [(rows[0][1][1], rows) for rows in allowed]

    def _is_natural(self, key: str) -> bool:
        """Its flows are those that the analysis finds."""
        return not (key in self._spokesmen or key in self._offers.free or key in self._offers.one_way)

    def _placed_flows(
        self, signature: Signature, fmt: Format, result: int | None, operand: int | None
    ) -> tuple[Flow, ...]:
        """The flows from ``fmt``, their buffers in every memory that the target allows."""
        computation, placement = signature.computation, self._offers.placement
        if computation is None or not (signature.flows or signature.key in self._spokesmen):
            return ()
        number = computation.results[result or 0] if operand is None else computation.operands[operand]
        if why_not_placed(computation, number, fmt, placement) is not None:
            return ()
        found = self._flat_flows(signature, computation, in_flat_memory(fmt), result, operand)
        return tuple(p for flow in found for p in placed(computation, flow, {number: fmt}, placement))

    def _flat_flows(
        self, signature: Signature, computation: Computation, fmt: Format, result: int | None, operand: int | None
    ) -> tuple[Flow, ...]:
        """The flows from a format of flat memory, each question answered once."""
        number = len(signature.operands) + (result or 0) if operand is None else operand
        question = (signature.key, number, fmt.key)
        if question in self._flat:
            return self._flat[question]
        spokesman, is_inner = self._spokesmen.get(signature.key), signature.key in self._offers.inner
        way = self._offers.one_way.get(signature.key)
        flows: tuple[Flow, ...]
        if fmt.is_row_major:  # of another memory
            flows = (complete(computation, [None] * len(signature.operands), [None] * len(signature.results)),)
        elif spokesman is not None:
            flows = spokesman.flows(fmt, result=result, operand=operand)
        elif way is not None:
            flows = self._meeting_flows(signature, fmt, number, way)
        elif signature.key in self._offers.free:
            flows = self._free_flows(signature, fmt, number)
        elif operand is None:
            flows = backward(computation, result or 0, fmt, contractions=is_inner)
        else:
            flows = forward(computation, operand, fmt, contractions=is_inner)
        self._flat[question] = flows
        if flows and self._is_natural(signature.key) and not fmt.is_padded and not fmt.is_row_major:
            told = in_step_with_result(computation)
            self._flat |= {(signature.key, other, fmt.key): flows for other in told if number in told}
        return flows

    def _free_flows(self, signature: Signature, fmt: Format, number: int) -> tuple[Flow, ...]:
        """A contraction with operand ``number`` (or, after them, its result) in ``fmt``, others in what is known of."""
        if signature.is_tuple or not moves_whole_axes(fmt):
            return ()
        assert signature.computation is not None
        types = (*signature.operands, *signature.results)
        plain = [[Format.row_major(t.shape)] for t in types if t is not None]
        known = self._free.setdefault(signature.key, plain)
        if fmt in known[number] or len(known[number]) >= _MOST_FREE:
            return ()
        known[number].append(fmt)
        made = free_formats(known, number, fmt)
        return tuple(complete(signature.computation, formats[:-1], formats[-1:]) for formats in made)

    def _meeting_flows(self, signature: Signature, fmt: Format, number: int, way: str) -> tuple[Flow, ...]:
        """Within a graph that replaces an op: layouts come from its dominant op along ``way``; what comes from the
        other side is met, each of the one with each of the other, and goes no further."""
        computation = signature.computation
        count = len(signature.operands)
        if computation is None or signature.is_tuple:
            return ()
        ends = self._free.setdefault(signature.key, [[] for _ in range(count + 1)])
        if fmt in ends[number] or len(ends[number]) >= _MOST_MET:
            return ()
        ends[number].append(fmt)
        flows: list[Flow] = []
        if (number == count) == (way == "backward"):
            ask = backward if number == count else forward
            flows += ask(computation, 0 if number == count else number, fmt, contractions=True)
        for other in range(count) if number == count else [count]:
            for met in ends[other]:
                given: list[Format | None] = [None] * (count + 1)
                given[number], given[other] = fmt, met
                flows.append(complete(computation, given[:-1], given[-1:]))
        return tuple(dict.fromkeys(flows))

    def _variant_rows(self, key: str, flow: Flow, origin: str) -> list[AnswerRow]:
        operands = [self._names.format(f) for f in flow.operands]
        results = [self._names.format(f) for f in flow.results]
        rows = self._rows_of(key, operands, results, flow, origin)
        told = dict(enumerate(operands)) if len(operands) >= _MANY_OPERANDS else {}
        told |= dict(enumerate(results, len(operands))) if len(results) > 1 else {}
        for number, name in told.items():
            self._known.setdefault((key, number, name), []).append((rows[0][1][1], rows[:1]))
        return rows

    def _rows_of(
        self, key: str, operands: Sequence[str], results: Sequence[str], flow: Flow | None, origin: str
    ) -> list[AnswerRow]:
        variant = self._names.variant(key, operands, results, flow, origin)
        reads = self._names.operand_list(operands)
        return [("back", (key, variant.result, variant.key, reads)), *self._names.take_new_rows()]

    def _allowed(self, flow: Flow) -> bool:
        """Whether all new formats of the flow are within the bound."""
        new = []
        for fmt in (*flow.operands, *flow.results):
            known = self._formats_of_shape.setdefault(fmt.shape, set())
            if fmt.key not in known:
                if len(known) >= self._max_formats:
                    self.refused += 1
                    return False
                new.append((known, fmt.key))
        for known, name in new:
            known.add(name)
        return True


def _frozen_format(signature: Signature, result: int | None, operand: int | None) -> Format | None:
    if signature.frozen is None:
        return None
    return signature.frozen.results[result or 0] if operand is None else signature.frozen.operands[operand]


def _moves(flow: Flow) -> bool:
    """Some tensor lies elsewhere than where it is written; else it is the op as written."""
    return not all(f.stays_in_place for f in (*flow.operands, *flow.results))


def _gives_symbols(signature: Signature, flow: Flow) -> bool:
    """Every symbolic size is that of an axis of some buffer: a kernel can't work it out of products."""
    if not signature.symbols:
        return True
    extents = {e for f in (*flow.operands, *flow.results) if f is not None for e in f.physical_shape}
    return all(name in extents for name, _ in signature.symbols)
