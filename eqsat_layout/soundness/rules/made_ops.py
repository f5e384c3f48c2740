"""Ops that rules ask for, in models: what the host makes of them, evaluated.

In: the name of an op, its attributes as text, and tensors. Out: the value of the graph that the host gives for it;
:class:`NotMadeError` where it gives none. ``made_rows.py`` puts such terms into models.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tvm

from eqsat_layout.egraph.op_answers import OpAnswers
from eqsat_layout.errors import Refused
from eqsat_layout.graph.borders import Part
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.graph.op_calls import attributes_of, defaults_of
from eqsat_layout.graph.part_calls import part_calls
from eqsat_layout.graph.templates import Template
from eqsat_layout.soundness.rules.bits import WORLDS
from eqsat_layout.soundness.rules.ill_typed import IllTypedError, NotMadeError
from eqsat_layout.soundness.rules.known_ops import why_not_run
from eqsat_layout.soundness.rules.runners import RunnableOp
from eqsat_layout.soundness.rules.schema import OpCall
from eqsat_layout.soundness.rules.values import Values

GraphTerms = dict[tuple[str, int], tuple[Any, ...]]
"""The terms of a graph, by kind and number, as :class:`Values` has them."""

_KINDS = {"param": "node", "const": "node", "op": "node", "get": "node", "end": "nodes", "arg": "nodes"}


class MadeOps:
    """The answers of one host about ops; each question is put once. ``parts`` takes the views that it names,
    ``interpreters`` what runs ops that are not one PrimFunc."""

    def __init__(self, answers: OpAnswers, parts: dict[str, Part], interpreters: dict[str, RunnableOp]):
        self._answers, self._parts, self._interpreters = answers, parts, interpreters
        self._graphs: dict[tuple[str, str, str], tuple[str, GraphTerms] | str] = {}
        self._settings: dict[str, tuple[Mapping[str, Any], Collection[str]]] = {}

    def type_name(self, values: Values, number: int) -> str:
        """The name of a tensor's type."""
        array = values.array(number)
        return values.names.type(TensorType(tuple(array.shape[1:]), str(array.dtype)))

    def type_names(self, values: Values, operands: Sequence[int]) -> str:
        """The names of the types of an operand list."""
        return "".join(f"{self.type_name(values, x)};" for x in operands)

    def attribute(self, values: Values, key: str, name: str) -> Any:
        """An attribute of an op; :class:`IllTypedError` if it has none of that name."""
        found = self._settings_of(values, key)[0]
        if name not in found:
            raise IllTypedError(f"{key} has no {name}")
        return found[name]

    def is_default(self, values: Values, key: str, name: str) -> bool:
        """Whether an op is what it would be if nothing were said of this attribute of its."""
        return name in self._settings_of(values, key)[1]

    def _settings_of(self, values: Values, key: str) -> tuple[Mapping[str, Any], Collection[str]]:
        """The attributes of an op, and the names of those that have their defaults."""
        part, signature = values.parts.get(key), values.signatures.get(key)
        if key not in self._settings and part is not None:
            calls = part_calls(part)
            found = {n: v for call in calls for n, v in call.attributes.items()}
            self._settings[key] = found, {n for call in calls for n in call.defaults}
        elif key not in self._settings and signature is not None:
            found = attributes_of(signature.template) or {}
            self._settings[key] = found, defaults_of(signature.template, found) if found else ()
        return self._settings.get(key, ({}, ()))

    def make(self, values: Values, name: str, settings: str, operands: tuple[int, ...]) -> int:
        """The value of an op of this name over these operands."""
        graph, terms = self._graph(name, settings, self.type_names(values, operands))
        values.graphs[graph] = terms
        for what, *rest in terms.values():
            if what == "const":
                array = np.stack([values.names.constants[rest[0]].source.value.numpy()] * WORLDS)
                values.constants.setdefault(rest[0], values.intern(array, ("Const", rest[0])))
        return values.graph(graph, operands)

    def op_key(self, values: Values, name: str, operands: Sequence[int]) -> str:
        """The op that is made then, if it is one."""
        _, terms = self._graph(name, "", self.type_names(values, operands))
        what, *rest = terms["node", terms["result", 0][0]]
        if what != "op":
            raise NotMadeError(f"{name} over these operands is no op")
        return str(rest[0])

    def graph_of(self, name: str, settings: str, types: str) -> str:
        """The name of the graph that the host gives."""
        return self._graph(name, settings, types)[0]

    @property
    def graphs(self) -> dict[str, GraphTerms]:
        """All graphs that the host has given."""
        return {graph: terms for graph, terms in (f for f in self._graphs.values() if not isinstance(f, str))}

    def _graph(self, name: str, settings: str, types: str) -> tuple[str, GraphTerms]:
        question = (name, settings, types)
        found = self._graphs.get(question)
        if found is None:
            found = self._graphs[question] = self._asked(question)
        if isinstance(found, str):
            raise NotMadeError(found)
        return found

    def _asked(self, question: tuple[str, str, str]) -> tuple[str, GraphTerms] | str:
        try:
            graph, rows = self._answers.graph(*question)
        except Refused as error:
            return f"{question[0]} can't be made: {error}"
        self._parts.update((name, part) for name, part in self._answers.parts.items() if name not in self._parts)
        terms: GraphTerms = {}
        for relation, (_, number, *rest) in ((r, row) for r, row in rows if r.startswith("alt-")):
            kind = relation.removeprefix("alt-")
            if kind == "result":
                terms["result", 0] = (number,)
            else:
                terms[_KINDS[kind], number] = (kind, *rest)
        made = {k: self._answers.signatures.get(k) for what, *rest in terms.values() if what == "op" for k in rest[:1]}
        for key, signature in made.items():
            if signature is not None and key not in self._interpreters:
                why = why_not_run(signature, _call_of(signature), self._interpreters)
                if why:
                    return f"{signature.name} can't be evaluated: {why}"
        return graph, terms


def _call_of(signature: Signature) -> OpCall | None:
    """The op as a call over operands of its types; None where these are not known."""
    operands = tuple(ty for ty in signature.operands if ty is not None)
    if not isinstance(signature.template, tvm.ir.Call) or len(operands) < len(signature.operands):
        return None
    template = Template(signature.template)
    return OpCall(signature.name, lambda *tensors: template.over(tensors), operands, signature.key)
