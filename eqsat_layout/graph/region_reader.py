"""Relax bindings as the nodes of one :class:`Graph`.

In: bindings in order. Out: the graph they fill; :class:`Barrier` for the first that is not understood.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import ir, relax, tirx

from eqsat_layout.graph.frozen import FrozenLayouts
from eqsat_layout.graph.graph import Graph, Lifted, Node, TensorType
from eqsat_layout.graph.relax_form import known_type
from eqsat_layout.graph.rewrite_form import write_relax
from eqsat_layout.graph.signatures import SignatureTable
from eqsat_layout.graph.templates import is_tuple_of_tensors, is_value
from eqsat_layout.graph.tensor_types import TensorTypes, variables_in
from eqsat_layout.tir.hoist import Hoisted
from eqsat_layout.tir.layout_rewrite import LayoutRewrite

_PLACING: Final = ("relax.to_vdevice", "relax.hint_on_device")
"""Relax ops that say where a value lies; the value is the operand's."""


class Barrier(Exception):
    """The binding is not understood."""


class RegionReader:
    """Fills one graph. ``goals`` collects (var, node) of every binding until the block reader picks the real ones."""

    def __init__(self, graph: Graph, types: TensorTypes, table: SignatureTable, frozen: FrozenLayouts):
        self._graph, self._types, self._table, self._frozen = graph, types, table, frozen
        self._node_of: dict[int, int] = {}
        self._fields_of: dict[int, tuple[int, ...]] = {}
        self._gets: dict[tuple[int, int], int] = {}
        self._defined: list[tuple[Any, int]] = []
        self._keep: list[Any] = []

    def finish(self, bindings: tuple[int, int]) -> Graph:
        """The graph of the bindings that were read: those from the first number to before the second."""
        self._graph.bindings = bindings
        self._graph.goals = self._defined
        return self._graph

    def read(self, binding: Any) -> None:
        """Adds what ``binding`` computes; raises :class:`Barrier` where that is not understood."""
        if not isinstance(binding, relax.VarBinding) or isinstance(binding.var.ty, ir.PrimType):
            raise Barrier  # a number may be used in any shape and any attribute
        var, value = binding.var, binding.value
        if isinstance(value, ir.Call):
            node = self._read_call(var, value)
        elif isinstance(value, relax.Tuple):
            node = self._read_tuple(var, value)
        elif isinstance(value, relax.TupleGetItem):
            node = self._field(value.tuple_value, int(value.index), var)
        elif isinstance(value, ir.Var | ir.GenericConst):
            node = self._operand(value)
            source = hash(value)
            if source in self._fields_of:
                self._fields_of[hash(var)] = self._fields_of[source]
        else:
            raise Barrier
        self._define(var, node)

    def _define(self, var: Any, node: int) -> None:
        self._node_of[hash(var)] = node
        self._defined.append((var, node))

    def _add(self, node: Node) -> int:
        self._graph.nodes.append(node)
        return len(self._graph.nodes) - 1

    def _read_call(self, var: Any, call: Any) -> int:
        operands: list[int] = []
        args = list(call.args)
        if isinstance(call.op, ir.Var):
            raise Barrier
        for arg in args:
            operands.extend(self._leaves(arg))
        nodes = self._graph.nodes
        types = tuple(nodes[i].type for i in operands)
        results = self._result_types(call.ty)
        name = str(var.name)
        if getattr(call.op, "name", "") in _PLACING and len(types) == 1 and None not in (*types, *results):
            key = self._table.key_of_placing(call, known_type(types[0]), known_type(results[0]))
            return self._add(Node("op", name, results[0], var, key, tuple(operands)))
        frozen = self._frozen.of_call(name, call, types, results)
        where = f"{self._graph.function}: {getattr(call.op, 'name', 'call')} bound to {name!r}"
        hoisted = self._table.hoisted(call, types, results) if frozen is None else None
        if hoisted is not None:
            return self._read_hoisted(var, call, where, operands, hoisted, results)
        symbols = self._types.symbols_of((*types, *results))
        key = self._table.key_of(where, call, types, results, frozen, symbols)
        type_ = results[0] if len(results) == 1 else None
        return self._add(Node("op", name, type_, var, key, tuple(operands)))

    def _read_hoisted(
        self,
        var: Any,
        call: Any,
        where: str,
        operands: list[int],
        hoisted: Hoisted,
        results: tuple[TensorType | None, ...],
    ) -> int:
        """A call of a PrimFunc that re-lays-out what it reads or writes: the rewrites become ops of their own."""
        name = str(var.name)
        inputs = [
            self._rewritten(where, i, hoisted.pre.get(position), self._graph.nodes[i].label, None)
            for position, i in enumerate(operands)
        ]
        types = [known_type(self._graph.nodes[i].type) for i in inputs]
        inner = [
            TensorType(hoisted.post[i].shape, ty.dtype) if i in hoisted.post else ty
            for i, ty in enumerate(map(known_type, results))
        ]
        symbols = self._types.symbols_of((*(self._graph.nodes[i].type for i in operands), *results))
        callee = str(call.args[0].name_hint)
        whole = self._table.key_of(
            where, call, tuple(self._graph.nodes[i].type for i in operands), results, None, symbols
        )
        lifted = _lifted(whole, hoisted, len(inner))
        key = self._table.key_of_hoisted(where, callee, hoisted.func, types, inner, symbols, lifted)
        if len(inner) == 1:
            is_last = not hoisted.post or hoisted.post[0].is_identity
            core = self._add(Node("op", name, inner[0], var if is_last else None, key, tuple(inputs)))
            return self._rewritten(where, core, hoisted.post.get(0), name, var)
        core = self._add(Node("op", name, None, None, key, tuple(inputs)))
        fields = tuple(
            self._rewritten(
                where,
                self._add(Node("get", f"{name}_{i}", ty, None, inputs=(core,), index=i)),
                hoisted.post.get(i),
                f"{name}_{i}",
                None,
            )
            for i, ty in enumerate(inner)
        )
        self._fields_of[hash(var)] = fields
        leaves = relax.Tuple([relax.Var(f"p{i}", ty) for i, ty in enumerate(var.ty.fields)])
        key = self._table.key_of_opaque(leaves, "tuple", results, (None,))
        return self._add(Node("op", name, None, var, key, fields))

    def _rewritten(self, where: str, node: int, rewrite: LayoutRewrite | None, name: str, var: Any) -> int:
        """``node`` under ``rewrite``, as Relax ops; the last of them defines ``var``."""
        dtype = known_type(self._graph.nodes[node].type).dtype
        calls = write_relax(rewrite, dtype, self._types.symbols) if rewrite is not None else []
        for i, call in enumerate(calls):
            operand, result = (self._types.read(ty) for ty in (call.args[0].ty, call.ty))
            symbols = self._types.symbols_of((operand, result))
            key = self._table.key_of(where, call, (operand,), (result,), None, symbols)
            own = var if i == len(calls) - 1 else None
            node = self._add(Node("op", name, result, own, key, (node,)))
        return node

    def _leaves(self, arg: Any) -> list[int]:
        """The operands that an argument stands for; arguments that are no values of the program give none."""
        if isinstance(arg, relax.Tuple):
            return [leaf for element in arg.fields for leaf in self._leaves(element)]
        if is_tuple_of_tensors(arg):
            fields = self._fields_of.get(hash(arg))
            if fields is None:
                fields = tuple(self._field(arg, i, None) for i in range(len(arg.ty.fields)))
            return list(fields)
        if is_value(arg):
            return [self._operand(arg)]
        if _mentions_values(arg):
            raise Barrier
        return []

    def _operand(self, leaf: Any) -> int:
        known = self._node_of.get(hash(leaf))
        if known is None:
            self._keep.append(leaf)  # the handle that keys it must stay taken
            type_ = self._types.read(leaf.ty)
            if isinstance(leaf, ir.GenericConst) and type_ is not None:
                node = Node("const", f"c{len(self._graph.nodes)}", type_, leaf)
            else:
                name = str(leaf.name) if isinstance(leaf, ir.Var) else "constant"
                node = Node("param", f"{name}@{len(self._graph.nodes)}", type_, leaf)
            known = self._node_of[hash(leaf)] = self._add(node)
        return known

    def _read_tuple(self, var: Any, value: Any) -> int:
        fields: list[int] = []
        for element in value.fields:
            if isinstance(element.ty, relax.TupleType) or not isinstance(element, ir.Var | ir.GenericConst):
                raise Barrier
            fields.append(self._operand(element))
        self._fields_of[hash(var)] = tuple(fields)
        types = tuple(self._graph.nodes[i].type for i in fields)
        key = self._table.key_of_opaque(value, "tuple", types, (None,))
        return self._add(Node("op", str(var.name), None, var, key, tuple(fields)))

    def _field(self, tuple_value: Any, index: int, var: Any) -> int:
        if not isinstance(tuple_value, ir.Var):
            raise Barrier
        fields = self._fields_of.get(hash(tuple_value))
        if fields is not None:
            return fields[index]
        source = self._operand(tuple_value)
        known = self._gets.get((source, index))
        if known is None:
            type_ = self._types.read(tuple_value.ty.fields[index])
            name = str(var.name) if var is not None else f"{tuple_value.name}_{index}"
            if self._table.has_parts(self._graph.nodes[source].signature):
                known = self._add(Node("get", name, type_, var, inputs=(source,), index=index))
            else:
                item = relax.TupleGetItem(tuple_value, index)
                key = self._table.key_of_opaque(item, "tuple_get_item", (None,), (type_,))
                known = self._add(Node("op", name, type_, var, key, (source,)))
            self._gets[source, index] = known
        return known

    def _result_types(self, ty: Any) -> tuple[TensorType | None, ...]:
        if isinstance(ty, relax.TupleType) and len(ty.fields) != 1:
            fields = tuple(self._types.read(f) for f in ty.fields)
            return (None,) if None in fields else fields
        return (self._types.read(ty),)


def _lifted(whole: str, hoisted: Hoisted, results: int) -> Lifted | None:
    """How the whole call is put together again; None where that takes more than maps."""
    post = hoisted.post.get(0)
    maps = [(i, r.index_map) for i, r in sorted(hoisted.pre.items()) if r.index_map is not None]
    if len(maps) < len(hoisted.pre) or results != 1 or (post is not None and post.index_map is None):
        return None
    after = None if post is None or post.is_identity else post.index_map
    return Lifted(whole, tuple((i, index_map) for i, index_map in maps if not index_map.is_identity), after)


def _mentions_values(arg: Any) -> bool:
    """A static argument may not hold a Relax value that emission would have to rename."""
    if isinstance(arg, ir.GlobalVar | relax.ExternFunc | ir.StringImm | tirx.IntImm | tirx.FloatImm):
        return False
    values = relax.TensorType | relax.TupleType | relax.AnyType | relax.ShapeType
    return any(isinstance(v.ty, values) for v in variables_in(arg))
