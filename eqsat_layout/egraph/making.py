"""Ops that rules ask for and that no program has: built as Relax, typed by TVM, read by the importer.

In: the name of an op, its attributes as text, the types of its operands. Out: :class:`Alternative`, a graph as the
candidates are, and the signatures that are new; :class:`~eqsat_layout.errors.Refused` where there is no such op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tvm import ir, relax

from eqsat_layout.egraph.attribute_text import read_attributes
from eqsat_layout.errors import Refused
from eqsat_layout.graph.graph import Graph, Node, Signature, TensorType, any_numbers_in
from eqsat_layout.graph.importer import import_module
from eqsat_layout.graph.op_calls import make_call, typed, with_attributes
from eqsat_layout.graph.relax_form import relax_type
from eqsat_layout.graph.templates import settings_of
from eqsat_layout.graph.unfinished import blocks_ended
from eqsat_layout.implementations.offers import Alternative

Builder = Callable[[Sequence[Any], Mapping[str, Any]], Any]
"""From operands and attributes to the Relax expression that a rule written in Python makes; Refused if none."""

_MOST_MADE, _MADE_EACH = 200, 4
"""What is made for a program, and for each of its distinct ops: rules that go on for ever come to an end."""


class TooManyError(Exception):
    """More is asked for than is made for a program of this size."""


@dataclass(frozen=True)
class MadeGraph:
    """``signatures``: those in the graph that nobody had before."""

    alternative: Alternative
    signatures: tuple[Signature, ...]


class Maker:
    """Makes ops over the ``signatures`` of one program, which it adds to; what is equal to one of them is that one."""

    def __init__(
        self,
        signatures: dict[str, Signature],
        symbols: Mapping[str, Any],
        builders: Mapping[str, Builder] | None = None,
        *,
        most: int | None = _MOST_MADE,
    ):
        self.signatures, self._symbols, self._builders = signatures, dict(symbols), builders or {}
        self._most = math.inf if most is None else most + _MADE_EACH * len(signatures)
        self._any_numbers = any_numbers_in(signatures)
        self._known: dict[Any, str] = {}
        self._made = 0

    def make(self, name: str, settings: str, types: Sequence[TensorType]) -> MadeGraph:
        """Op ``name`` (or the op of that signature, or what a Python rule says) of operands of these types."""
        if self._made >= self._most:
            raise TooManyError(f"{self._most:g} ops made by rules")
        self._made += 1
        operands = [relax.Var(f"p{i}", relax_type(ty, None, self._symbols)) for i, ty in enumerate(types)]
        attributes = read_attributes(settings)
        builder = relax.BlockBuilder()
        with blocks_ended(lambda: builder), builder.function(_MAIN, operands):  # refused, or a fault of a person's rule
            with builder.dataflow():
                expr = self._expression(name, operands, attributes)
                output = builder.emit_output(typed(builder, expr))
            builder.emit_func_output(output)
        graph, own_operand = f"made{self._made}", _operand_of(expr, operands)
        if own_operand is not None:
            node = Node("param", graph, types[own_operand], expr)
            return MadeGraph(Alternative(graph, Graph(_MAIN, 0, (0, 0), [node]), (own_operand,), 0), ())
        mod = relax.transform.DeadCodeElimination()(builder.finalize())  # a pattern is written once more for its result
        return self._read(graph, mod, operands, types)

    def _expression(self, name: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        own, builder = self.signatures.get(name), self._builders.get(name)
        if own is not None:
            return _again(own, operands, attributes)
        return make_call(name, operands, attributes) if builder is None else builder(operands, attributes)

    def _read(self, name: str, mod: Any, operands: Sequence[Any], types: Sequence[TensorType]) -> MadeGraph:
        read = import_module(mod, any_numbers=self._any_numbers)
        if len(read.graphs) != 1 or len(read.graphs[0].goals) != 1:
            raise Refused("it is not understood")
        (graph,) = read.graphs
        renamed, new = self._renamed(read.signatures[node.signature] for node in graph.nodes if node.kind == "op")
        nodes = [replace(node, signature=renamed.get(node.signature, "")) for node in graph.nodes]
        params = tuple(_operand_of(node.var, operands) if node.kind == "param" else None for node in nodes)
        for i, node in zip(params, nodes, strict=True):
            if node.kind == "param" and (i is None or node.type != types[i]):
                raise Refused("it reads something else than its operands as they are")
        copy = Graph(graph.function, graph.block, graph.bindings, nodes, graph.goals, graph.symbols)
        return MadeGraph(Alternative(name, copy, params, graph.goals[0][0]), new)

    def _renamed(self, read: Iterable[Signature]) -> tuple[dict[str, str], tuple[Signature, ...]]:
        """The keys of ``read`` here; those that are new are added to the program's."""
        if not self._known:
            known = ((_identity(signature), key) for key, signature in self.signatures.items())
            self._known = {identity: key for identity, key in known if identity is not None}
        renamed: dict[str, str] = {}
        new: list[Signature] = []
        for signature in read:
            identity = _identity(signature)
            key = self._known.get(identity) if identity is not None else None
            if key is None:
                key = self._free_key(signature.name)
                self.signatures[key] = replace(signature, key=key)
                new.append(self.signatures[key])
                self._known.update({} if identity is None else {identity: key})
            renamed[signature.key] = key
        return renamed, tuple(new)

    def _free_key(self, name: str) -> str:
        number = len(self.signatures)
        while f"{name}#{number}" in self.signatures:
            number += 1
        return f"{name}#{number}"


_MAIN: Final = "main"


def _again(signature: Signature, operands: Sequence[Any], changed: Mapping[str, Any]) -> Any:
    if signature.frozen is not None or not isinstance(signature.template, ir.Call):
        raise Refused(f"{signature.name} can't be made anew: it is frozen, or no op")
    if signature.rule_name.startswith("call_tir"):
        raise Refused(f"{signature.name} is a PrimFunc, which knows its operands' types")
    return with_attributes(signature.template, operands, changed)


def _identity(signature: Signature) -> Any:
    """Equal for ops that do the same; None where that can't be told."""
    template = signature.template
    is_op = isinstance(template, ir.Call) and isinstance(template.op, ir.Op) and template.op.name == signature.name
    if not is_op or signature.frozen is not None or signature.lifted is not None or None in signature.results:
        return None
    variables = tuple(hash(var) for _, var in signature.symbols)
    return signature.name, settings_of(template), signature.operands, signature.results, variables


def _operand_of(var: Any, operands: Sequence[Any]) -> int | None:
    return next((i for i, operand in enumerate(operands) if operand.same_as(var)), None)
