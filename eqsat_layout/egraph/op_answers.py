"""Answers for rules that ask for ops: what ops are made of, which types they give, and the graphs of those to be made.

In: signatures of a program and questions of rules. Out: facts of attributes and result types; rows of the graphs
that a :class:`Maker` makes. What was refused is kept with its reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tvm import ir

from eqsat_layout.egraph.answers import Answers
from eqsat_layout.egraph.attribute_text import shown
from eqsat_layout.egraph.making import Maker
from eqsat_layout.egraph.names import Names
from eqsat_layout.egraph.part_answers import AnswerRow
from eqsat_layout.egraph.rows import GraphRows, alternative_rows, single_op_rows
from eqsat_layout.errors import Declined, Refused
from eqsat_layout.graph.borders import Border, Part
from eqsat_layout.graph.graph import Program, Signature, TensorType
from eqsat_layout.graph.op_calls import Attribute, attributes_of, defaults_of
from eqsat_layout.graph.part_calls import part_calls
from eqsat_layout.implementations.collect import make_offers
from eqsat_layout.maps import IndexMap


class OpAnswers(Answers):
    """``not_made``: what could not be made, with the reason, by the name of the op and the types of its operands.

    ``made``: names of what could, ``declined``: of rules that said themselves, once at least, that they do not hold.

    Without a ``maker`` nothing is said of attributes and types, and nothing is made.
    """

    def __init__(self, signatures: Mapping[str, Signature], names: Names, *, maker: Maker | None = None, **more: Any):
        self._all = dict(signatures)
        super().__init__(self._all, names, **more)
        self._maker = maker
        self._graphs: dict[tuple[str, str, str], tuple[str, list[AnswerRow]]] = {}
        self.not_made: dict[tuple[str, str], str] = {}
        self.declined: dict[str, str] = {}
        self.made: set[str] = set()

    def facts(self) -> Iterable[AnswerRow]:
        """As :class:`Answers`; and the attributes and result types of ops."""
        yield from super().facts()
        for signature in self._all.values() if self._maker is not None else ():
            yield from self._described(signature)

    def part_facts(self, part: Part) -> list[AnswerRow]:
        """As :class:`Answers`; and the Relax ops that the part is, with their attributes."""
        own = self._calls_of(part) if isinstance(part, Border) else ()
        return [*super().part_facts(part), *own]

    def _view_facts(self, view: IndexMap) -> list[AnswerRow]:
        return [*super()._view_facts(view), *self._calls_of(view)]

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """Those of the program, and of all that was made."""
        return self._all

    # ---- making -----------------------------------------------------------------------------------------------------

    def answer_through(self, part: str, operand: str) -> list[AnswerRow]:
        """The type that a view, pad or crop gives, for that of its operand."""
        own, ty = self.parts.get(part), self._names.types[operand]
        if own is None:
            return []
        return [("through", (part, operand, self._names.type(TensorType(own.result_shape, ty.dtype))))]

    def answer_make(self, name: str, settings: str, operands: str) -> list[AnswerRow]:
        """The graph of an op that a rule asks for; none where no such op takes such operands."""
        try:
            graph, rows = self.graph(name, settings, operands)
        except Declined as error:
            self.declined[name] = str(error)
            return []
        except Refused as error:
            self.not_made.setdefault((name, operands), str(error))
            return []
        self.made.add(name)
        return [("make", (name, settings, operands, graph)), *rows, *self._names.take_new_rows()]

    def graph(self, name: str, settings: str, operands: str) -> tuple[str, list[AnswerRow]]:
        """The name of that graph and the rows that say what it is; :class:`Refused` where there is none."""
        question = (name, settings, operands)
        if question not in self._graphs:
            self._graphs[question] = self._made(name, settings, operands)
        return self._graphs[question]

    def _made(self, name: str, settings: str, operands: str) -> tuple[str, list[AnswerRow]]:
        types = [self._names.types[ty] for ty in operands.split(";") if ty]
        if self._maker is None:
            raise Refused("nothing is made here")
        if not settings and self._takes(name, types):
            graph = f"one:{name}"
            return graph, list(_flat(single_op_rows(graph, name, len(types))))
        made = self._maker.make(name, settings, types)
        new = {signature.key: signature for signature in made.signatures}
        self._all.update(new)
        graph = made.alternative.name
        rows = GraphRows(made.alternative.graph, self._all, self, self._names, f"{graph}/")
        facts = [row for signature in new.values() for row in self._told(signature)]
        return graph, [*_flat(alternative_rows(made.alternative, rows)), *facts, *self._offered(new, graph)]

    def _offered(self, keys: Collection[str], prefix: str) -> Iterator[AnswerRow]:
        """Takes the target's offers for ops that are new; what may replace them, as rows."""
        target = self._offers.implementer
        if target is None or self._maker is None or not keys:
            return
        program = Program([], self._maker.signatures, [])
        more = make_offers(program, target, None, spoken_for=(), only=keys, prices=self._offers.prices)
        self._offers = self._offers.joined(more)
        for key in sorted(more.inner):
            self._all[key] = program.signatures[key]
            yield from self._told(self._all[key])
        for i, graph in enumerate(graph for graphs in more.graphs.values() for graph in graphs):
            rows = GraphRows(graph.graph, self._all, self, self._names, f"{prefix}/{i}/")
            yield from _flat(alternative_rows(graph, rows))

    def _takes(self, name: str, types: Sequence[TensorType]) -> bool:
        """Whether the e-graph has an op of this name for these operands."""
        part = self.parts.get(name)
        if part is not None:
            taken = part.shape if isinstance(part, IndexMap) else part.operand_shape
            return len(types) == 1 and types[0].shape == taken
        signature = self._all.get(name)
        if signature is None or signature.parts:
            return False
        return [ty and ty.of_value for ty in signature.operands] == list(types)

    # ---- facts ------------------------------------------------------------------------------------------------------

    def _told(self, signature: Signature) -> Iterator[AnswerRow]:
        """All facts of an op that was made."""
        for part in signature.parts:
            yield from self.part_facts(part)
        if not signature.parts:
            yield "is", (signature.key, signature.rule_name)
            yield from self._described(signature)

    def _described(self, signature: Signature) -> Iterator[AnswerRow]:
        key = signature.key
        for i, ty in enumerate(signature.results if not signature.parts else ()):
            if ty is not None:
                name = self._names.type(ty)
                yield ("gives-part", (key, i, name)) if signature.is_tuple else ("gives", (key, name))
        if isinstance(signature.template, ir.Call) and not signature.parts:
            found = attributes_of(signature.template) or {}
            defaults = defaults_of(signature.template, found) if found else []
            yield from _attribute_rows(key, found, defaults)

    def _calls_of(self, part: Part) -> Iterator[AnswerRow]:
        for call in part_calls(part) if self._maker is not None else ():
            key = self.part_name(part)
            yield "is", (key, call.name)
            yield from _attribute_rows(key, call.attributes, call.defaults)


def _attribute_rows(key: str, attributes: Mapping[str, Attribute], defaults: Iterable[str]) -> Iterator[AnswerRow]:
    for name, value in attributes.items():
        yield "attr", (key, name, shown(value))
        if isinstance(value, int) and not isinstance(value, bool):
            yield "int-attr", (key, name, value)
    yield from (("default", (key, name)) for name in defaults)


def _flat(rows: Mapping[str, Iterable[tuple[Any, ...]]]) -> Iterator[AnswerRow]:
    return ((relation, row) for relation, content in rows.items() for row in content)
