"""Relax to graphs: every run of understood bindings in a dataflow block becomes a :class:`Graph`.

In: an IRModule. Out: a :class:`Program`. A binding that is not understood is a barrier: it stays where it is, the
region ends before it and a new one begins after it. Nothing is an error here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import tvm_ffi
from tvm import ir, relax, tirx

from eqsat_layout.errors import LayoutError
from eqsat_layout.graph.frozen import DesiredLayouts, FrozenLayouts
from eqsat_layout.graph.graph import Graph, Lifted, Node, Program, TensorType
from eqsat_layout.graph.overwriting import functions_that_overwrite
from eqsat_layout.graph.relax_form import known_type
from eqsat_layout.graph.rewrite_form import write_relax
from eqsat_layout.graph.signatures import SignatureTable
from eqsat_layout.graph.templates import is_tuple_of_tensors, is_value
from eqsat_layout.graph.vdevices import scope_of
from eqsat_layout.maps import Memory
from eqsat_layout.tir.callbacks import FlowCallbacks
from eqsat_layout.tir.extents import extent_of
from eqsat_layout.tir.hoist import Hoisted
from eqsat_layout.tir.layout_rewrite import LayoutRewrite


def import_module(
    mod: Any,
    desired_layouts: DesiredLayouts | None = None,
    callbacks: FlowCallbacks | None = None,
    memories: Mapping[str, Memory] | None = None,
) -> Program:
    """Reads all Relax functions of ``mod``; ``desired_layouts`` freezes ops as the ``frozen`` attribute does.

    PrimFuncs that one of ``callbacks`` speaks for are read as they are, without lifting rewrites out of them.
    ``memories``: those of the target by scope; tensors elsewhere are not understood.
    """
    types = TensorTypes({} if has_several_devices(mod) else memories)
    table = SignatureTable(mod, callbacks)
    graphs: list[Graph] = []
    notes: list[str] = []
    overwriting = functions_that_overwrite(mod)
    for global_var, function in sorted(mod.functions_items(), key=lambda item: str(item[0].name_hint)):
        if not isinstance(function, relax.Function) or not isinstance(function.body, relax.SeqExpr):
            continue
        if str(global_var.name_hint) in overwriting:
            notes.append(f"{global_var.name_hint}: left as it is, because it overwrites tensors in place")
            continue
        frozen = FrozenLayouts.of_function(str(global_var.name_hint), function, desired_layouts, notes, memories)
        for position, block in enumerate(function.body.blocks):
            if isinstance(block, relax.DataflowBlock):
                name, own = str(global_var.name_hint), types.fresh()
                graphs.extend(_DataflowReader(name, position, list(block.bindings), table, frozen, own).regions())
                notes.extend(f"{name}: ops on a tensor of such a size stay as they are: {why}" for why in own.refused)
        frozen.check_all_used()
    return Program(graphs, table.finish(), notes)


def has_several_devices(mod: Any) -> bool:
    """Tensors of the module lie on more than one device, not only in several memories of one."""
    devices = {(str(v.target), int(v.vdevice_id)) for v in mod.global_infos.get("vdevice", [])}
    return len(devices) > 1


class TensorTypes:
    """Reads Relax types. ``symbols`` collects the symbolic variables met, by name; ``memories`` are known by scope.

    ``refused`` collects why extents are not understood.
    """

    def __init__(self, memories: Mapping[str, Memory] | None = None) -> None:
        self._memories = memories or {}
        self.symbols: dict[str, Any] = {}
        self.refused: dict[str, None] = {}
        self._variables: dict[str, tuple[str, ...]] = {}
        self._known: dict[Any, TensorType | None] = {}

    def read(self, ty: Any) -> TensorType | None:
        """The type of a tensor of known rank and shape, else ``None``."""
        key = tvm_ffi.StructuralKey(ty)  # walking a shape costs far more than hashing it
        if key not in self._known:
            self._known[key] = self._read(ty)
        return self._known[key]

    def fresh(self) -> TensorTypes:
        """A reader with the same memories that has met no symbols."""
        return TensorTypes(self._memories)

    def symbols_of(self, types: Iterable[TensorType | None]) -> tuple[tuple[str, Any], ...]:
        """The symbolic variables that these types name."""
        extents = [e for ty in types if ty is not None for e in ty.shape if isinstance(e, str)]
        names = sorted({name for extent in extents for name in self._variables[extent]}) if extents else ()
        return tuple((name, self.symbols[name]) for name in names)

    def _read(self, ty: Any) -> TensorType | None:
        if not isinstance(ty, relax.TensorType) or ty.dtype is None or not isinstance(ty.shape, relax.ShapeExpr):
            return None
        shape = tuple(int(e) if isinstance(e, tirx.IntImm) else self._symbolic(e) for e in ty.shape.values)
        if None in shape:
            return None
        plain = TensorType(shape, str(ty.dtype))
        return plain if ty.vdevice is None else self._placed(plain, scope_of(ty))

    def _placed(self, plain: TensorType, scope: str) -> TensorType | None:
        """The type in another memory; ``None`` where the target has none such, or holds no such tensor there."""
        memory = self._memories.get(scope)
        fmt = None if memory is None else memory.placed(plain.row_major, plain.dtype)
        return None if fmt is None else TensorType(plain.shape, plain.dtype, scope, fmt.separators)

    def _symbolic(self, expr: Any) -> Any:
        """Text of a symbolic extent; None where its name already means another variable, or it is no arithmetic."""
        variables = _variables(expr)
        for var in variables:
            if not self.symbols.setdefault(str(var.name), var).same_as(var):
                return None
        try:
            extent = extent_of(expr)
        except LayoutError as error:
            self.refused[str(error)] = None
            return None
        if isinstance(extent, str):
            self._variables[extent] = tuple(str(var.name) for var in variables)
        return extent


def _variables(expr: Any) -> list[Any]:
    if isinstance(expr, ir.Var):
        return [expr]
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, (ir.Var, found.append))
    return found


_PLACING: Final = ("relax.to_vdevice", "relax.hint_on_device")
"""Relax ops that say where a value lies; the value is the operand's."""


class _Barrier(Exception):
    """The binding is not understood."""


class _DataflowReader:
    def __init__(
        self,
        function: str,
        position: int,
        bindings: list[Any],
        table: SignatureTable,
        frozen: FrozenLayouts,
        types: TensorTypes,
    ):
        self._function, self._position, self._bindings = function, position, bindings
        self._table, self._frozen = table, frozen
        self._types = types

    def regions(self) -> list[Graph]:
        graphs: list[Graph] = []
        start = 0
        reader = self._new_region(0)
        barriers: list[int] = []
        for i, binding in enumerate(self._bindings):
            try:
                reader.read(binding)
            except _Barrier:
                barriers.append(i)
                graphs.append(reader.finish((start, i)))
                start, reader = i + 1, self._new_region(i + 1)
        graphs.append(reader.finish((start, len(self._bindings))))
        graphs = [g for g in graphs if g.bindings[0] < g.bindings[1]]
        self._set_goals(graphs, barriers)
        return [g for g in graphs if g.goals and g.ops]

    def _new_region(self, start: int) -> _RegionReader:
        graph = Graph(self._function, self._position, (start, start), symbols=self._types.symbols)
        return _RegionReader(graph, self._types, self._table, self._frozen)

    def _set_goals(self, graphs: list[Graph], barriers: list[int]) -> None:
        """A region owes what leaves the block, and what the block's other bindings use."""
        used_elsewhere: dict[int, set[int]] = {}
        if len(graphs) > 1 or barriers:
            for i in range(len(self._bindings)):
                for var in _free_variables(self._bindings[i]):
                    used_elsewhere.setdefault(hash(var), set()).add(i)
        for graph in graphs:
            low, high = graph.bindings
            goals = []
            for var, node in graph.goals:
                users = used_elsewhere.get(hash(var), ())
                if not isinstance(var, relax.DataflowVar) or any(not low <= i < high for i in users):
                    goals.append((node, var))
            graph.goals = goals


def _free_variables(binding: Any) -> Iterable[Any]:
    found = list(relax.analysis.free_vars(binding.value))
    if isinstance(binding, relax.MatchCast):
        found.append(binding.value)
    return found


class _RegionReader:
    """Fills one graph. ``goals`` collects (var, node) of every binding until the block reader picks the real ones."""

    def __init__(self, graph: Graph, types: TensorTypes, table: SignatureTable, frozen: FrozenLayouts):
        self._graph, self._types, self._table, self._frozen = graph, types, table, frozen
        self._node_of: dict[int, int] = {}
        self._fields_of: dict[int, tuple[int, ...]] = {}
        self._gets: dict[tuple[int, int], int] = {}
        self._defined: list[tuple[Any, int]] = []
        self._keep: list[Any] = []

    def finish(self, bindings: tuple[int, int]) -> Graph:
        self._graph.bindings = bindings
        self._graph.goals = self._defined
        return self._graph

    def read(self, binding: Any) -> None:
        if not isinstance(binding, relax.VarBinding) or isinstance(binding.var.ty, ir.PrimType):
            raise _Barrier  # a number may be used in any shape and any attribute
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
            raise _Barrier
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
            raise _Barrier
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
            raise _Barrier
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
                raise _Barrier
            fields.append(self._operand(element))
        self._fields_of[hash(var)] = tuple(fields)
        types = tuple(self._graph.nodes[i].type for i in fields)
        key = self._table.key_of_opaque(value, "tuple", types, (None,))
        return self._add(Node("op", str(var.name), None, var, key, tuple(fields)))

    def _field(self, tuple_value: Any, index: int, var: Any) -> int:
        if not isinstance(tuple_value, ir.Var):
            raise _Barrier
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
    return any(isinstance(v.ty, values) for v in _variables(arg))
