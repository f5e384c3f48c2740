"""The questions that rules ask of Python, and their answers.

In: rows ``(ask-NAME in...)`` that rules put. Out: rows of the method ``answer_NAME`` (dashes as underscores), usually
``(NAME in... out...)``; no rows means no. Answers depend on the question only, so each is given once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from eqsat_layout.egraph.flow_answers import FlowAnswers
from eqsat_layout.egraph.names import Names
from eqsat_layout.egraph.part_answers import AnswerRow
from eqsat_layout.graph.constants import GROWTH, Applied, Constant, may_fold
from eqsat_layout.graph.foldable import may_run_at_compile_time
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.tir.fills import pointwise_fill
from eqsat_layout.tir.flow import Flow


class Answers(FlowAnswers):
    """Answers for the signatures of one program."""

    def __init__(self, signatures: Mapping[str, Signature], names: Names, **more: Any):
        super().__init__(signatures, names, **more)
        self._runnable: dict[str, bool] = {}

    def answerer(self, question: str) -> Callable[..., Sequence[AnswerRow]] | None:
        """The method that answers rows of relation ``question`` (``ask-NAME``); None if nobody does."""
        name = question.removeprefix("ask-").replace("-", "_")
        found: Callable[..., Sequence[AnswerRow]] | None = getattr(self, f"answer_{name}", None)
        return found

    @property
    def questions(self) -> tuple[str, ...]:
        """The relations ``ask-NAME`` that are answered."""
        names = (name.removeprefix("answer_") for name in dir(self) if name.startswith("answer_"))
        return tuple(f"ask-{name.replace('_', '-')}" for name in names)

    # ---- naming ops -------------------------------------------------------------------------------------------------

    def op_names(self, signature: Signature) -> list[str]:
        """What the e-graph calls an op: its signature's key, or what it is made of, so that equal views are equal."""
        return [self.part_name(part) for part in signature.parts] or [signature.key]

    def facts(self) -> Iterable[AnswerRow]:
        """What rules may test about signatures, and what they would ask of each of them first."""
        for signature in self._signatures.values():
            for part in signature.parts:
                yield from self.part_facts(part)
            if not signature.parts:
                yield "is", (signature.key, signature.rule_name)
                yield from self.answer_alternatives(signature.key)
                yield from self.answer_impls(signature.key)
                yield from (("is", (signature.key, "frozen")),) if signature.frozen else ()

    def result_type(self, name: str, operand: TensorType | None) -> TensorType | None:
        """The type of an op's only result, by the name that the e-graph has for the op; None where it is not known."""
        part = self._views.get(name) or self._borders.get(name)
        if part is not None:
            return None if operand is None else TensorType(part.result_shape, operand.dtype)
        signature = self._signatures.get(name)
        return None if signature is None or signature.is_tuple else signature.results[0]

    # ---- values -----------------------------------------------------------------------------------------------------

    def answer_fold(self, view: str, constant: str) -> list[AnswerRow]:
        """The constant under a view, a pad or a crop; its elements are computed when the plan is emitted."""
        folded = self._names.constants[constant].under(self.part(view))
        return [("fold", (view, constant, self._names.constant(folded)))]

    def answer_fold_op(self, key: str, operands: str) -> list[AnswerRow]:
        """The constant that an op makes of constants, where that does not blow up the program."""
        signature = self._signatures.get(key)
        constants = [self._names.constants[name] for name in operands.split(",") if name]
        if signature is None or signature.is_tuple or signature.computation is None or signature.is_moved:
            return []
        (ty,) = signature.results
        if ty is None or any(isinstance(e, str) for e in ty.shape) or not self._may_run(signature):
            return []
        size, given = math.prod(int(e) for e in ty.shape), sum(c.elements for c in constants)
        if not may_fold(size, given, self._names.own_elements, self._offers.growth.get(key, GROWTH)):
            return []
        folded = Constant(f"{key}~{len(self._names.constants)}", Applied(signature, tuple(constants)))
        return [("fold-op", (key, operands, self._names.constant(folded)))]

    def answer_uniform(self, constant: str) -> list[AnswerRow]:
        """The number that each element of a constant of the program is."""
        number = self._names.constants[constant].uniform
        return [] if number is None else [("uniform", (constant, number))]

    def _may_run(self, signature: Signature) -> bool:
        """Its PrimFunc may be run while compiling. What TVM makes of an op that only renames elements may."""
        if signature.view is not None and not signature.is_call_tir:
            return True
        if signature.key not in self._runnable:
            self._runnable[signature.key] = may_run_at_compile_time(signature.func) is None
        return self._runnable[signature.key]

    # ---- padding ----------------------------------------------------------------------------------------------------

    def answer_rim(self, key: str, operand: int, pad: str) -> list[AnswerRow]:
        """What an elementwise op makes of a border that holds a number, whatever its other operands are."""
        signature = self._flowing(key)
        border = self._borders[pad]
        if signature is None or signature.is_tuple or border.fill is None:
            return []
        assert signature.computation is not None
        fill = pointwise_fill(signature.computation, operand, border.fill)
        if not isinstance(fill, float):
            return []
        return [("rim-through", (key, operand, pad, self._border_name(replace(border, fill=fill))))]

    # ---- implementations ---------------------------------------------------------------------------------------------

    def answer_impls(self, key: str) -> list[AnswerRow]:
        """The formats that the op runs in by itself: those it is frozen to, or was written with, and its candidates."""
        signature = self._signatures.get(key)
        if signature is None:
            return []
        if signature.frozen is not None:
            flow = Flow(signature.frozen.operands, signature.frozen.results, ())
            rows = self._variant_rows(key, flow, "frozen" if signature.frozen.required else "desired")
        else:
            operands = [self._names.row_major([t]) for t in signature.operands]
            results = [self._names.row_major([t]) for t in signature.results]
            rows = self._rows_of(key, operands, results, None, "as written")
        found: list[AnswerRow] = [("impls", (key, rows[0][1][1])), *rows]
        for candidate in self._offers.layouts.get(key, ()):
            rows = self._variant_rows(key, candidate.flow, f"candidate: {candidate.name}")
            found += [("impls", (key, rows[0][1][1])), *rows]
        return found

    def answer_alternatives(self, key: str) -> list[AnswerRow]:
        """The graphs that the op may be replaced by."""
        return [("alternative", (key, graph.name)) for graph in self._offers.graphs.get(key, ())]

    def _flowing(self, key: str) -> Signature | None:
        signature = self._signatures.get(key)
        return signature if signature is not None and signature.flows else None
