"""Steps to Relax: the chosen plan of each region becomes bindings again.

In: the module, and per region its graph and steps. Out: a new module, equivalent and well formed. Values that stay
row-major keep the variables that they had; what lies in another format is a Relax op where one says it, ``call_tir`` of
the re-laid-out PrimFunc where none does. The input module is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax

from eqsat_layout.graph.constants import ConstantPool
from eqsat_layout.graph.frozen import FROZEN_ATTRIBUTE
from eqsat_layout.graph.graph import Graph, Signature, TensorType
from eqsat_layout.graph.relax_form import Request, known_type, relax_forms, relax_type, stand_ins
from eqsat_layout.graph.steps import ConstantUse, Convert, Given, Operand, Part, Run, Steps
from eqsat_layout.graph.templates import Template
from eqsat_layout.maps import UNDEF, Extent, Format, IndexMap
from eqsat_layout.tir.extents import expr_of
from eqsat_layout.tir.flow import Flow, complete
from eqsat_layout.tir.index_map import to_tvm
from eqsat_layout.tir.rewrite import relayout


def emit_module(mod: Any, regions: Sequence[tuple[Graph, Steps]], signatures: Mapping[str, Signature]) -> Any:
    """``mod`` with the bindings of each region replaced by its steps."""
    result = mod.clone()
    funcs = _PrimFuncs(result, signatures)
    by_function: dict[str, list[tuple[Graph, Steps]]] = {}
    for graph, steps in regions:
        by_function.setdefault(graph.function, []).append((graph, steps))
    for name, own in by_function.items():
        funcs.prepare([s for _, s in own])
        global_var = result.get_global_var(name)
        result.update_func(global_var, _rebuilt(result[global_var], own, signatures, funcs))
    return result


def _rebuilt(
    function: Any, regions: Sequence[tuple[Graph, Steps]], signatures: Mapping[str, Signature], funcs: _PrimFuncs
) -> Any:
    builder = relax.BlockBuilder()
    builder.begin_scope(list(function.params))
    blocks = list(function.body.blocks)
    constants = ConstantPool()
    constants.prepare(use.constant for _, steps in regions for use in steps.constants())
    for position in {graph.block for graph, _ in regions}:
        own = sorted((g.bindings, i) for i, (g, _) in enumerate(regions) if g.block == position)
        bindings = list(blocks[position].bindings)
        new: list[Any] = []
        end = 0
        for (low, high), i in own:
            new += bindings[end:low]
            new += _RegionEmitter(*regions[i], signatures, funcs, constants, builder).bindings()
            end = high
        blocks[position] = relax.DataflowBlock(new + bindings[end:])
    builder.end_scope()
    body = builder.normalize(relax.SeqExpr(blocks, function.body.body))
    result = relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)
    if function.attrs is not None and FROZEN_ATTRIBUTE in function.attrs:
        result = result.without_attr(FROZEN_ATTRIBUTE)  # the annotation is carried out
    return result


class _PrimFuncs:
    """Re-laid-out ops as template calls: a Relax op where one says it, else a PrimFunc added to the module."""

    def __init__(self, mod: Any, signatures: Mapping[str, Signature]):
        self._mod, self._signatures = mod, signatures
        self._templates: dict[tuple[str, Flow | None], Template] = {}
        self._builder = relax.BlockBuilder(mod)

    def prepare(self, programs: Sequence[Steps]) -> None:
        """Makes what the steps need, all at once, each once."""
        requests: dict[tuple[str, Flow], Request] = {}
        for program in programs:
            for step in program.steps:
                if isinstance(step, Run) and step.flow is not None:
                    key = (step.signature, step.flow)
                    if key not in self._templates and key not in requests:
                        requests[key] = self._request(*key)
        forms = relax_forms(list(requests.values()))
        for (key, request), form in zip(requests.items(), forms, strict=True):
            self._templates[key] = Template(form if form is not None else self._call_tir(request))

    def template(self, step: Run) -> Template:
        """The op in the formats of the step."""
        return self._templates[step.signature, step.flow]

    def _request(self, key: str, flow: Flow) -> Request:
        signature = self._signatures[key]
        assert signature.computation is not None, "only what is understood is ever given another format"
        if signature.frozen is not None:  # only the ends are given, what lies between is derived
            flow = complete(signature.computation, flow.operands, flow.results)
        return Request(signature, flow, relayout(signature.func, signature.computation, flow))

    def _call_tir(self, request: Request) -> Any:
        name = request.signature.name.removeprefix("relax.").replace(".", "_") + "_relaid"
        func = request.func
        if func.attrs is not None and func.attrs.get("global_symbol") is not None:
            func = func.without_attr("global_symbol")  # the name belongs to the function that it was made of
        if request.signature.frozen is not None:
            func = func.with_attr(FROZEN_ATTRIBUTE, True)  # frozen layouts stay frozen
        global_var = self._builder.add_func(func, name)  # gives it a type, a free name, and shares equal functions
        self._mod.update_func(global_var, func)
        types = [
            relax_type(known_type(t), f, request.symbols)
            for t, f in zip(request.signature.results, request.flow.results, strict=True)
        ]
        call = relax.call_tir(global_var, relax.Tuple(stand_ins(request)), types if types[1:] else types[0])
        return self._builder.normalize(call)


class _RegionEmitter:
    def __init__(
        self,
        graph: Graph,
        steps: Steps,
        signatures: Mapping[str, Signature],
        funcs: _PrimFuncs,
        constants: ConstantPool,
        builder: Any,
    ):
        self._graph, self._steps, self._signatures = graph, steps, signatures
        self._funcs, self._constants, self._builder = funcs, constants, builder
        self._rewriter = _Rewriter(builder, graph.symbols)
        self._written: dict[str, Template] = {}
        self._values: dict[int, Any] = {}
        self._bindings: list[Any] = []

    def bindings(self) -> list[Any]:
        for step in self._steps.steps:
            if isinstance(step, Given):
                self._values[step.store] = self._graph.nodes[step.node].var
            elif isinstance(step, Run):
                self._bind(step.store, self._run(step))
            elif isinstance(step, Part):
                self._bind(step.store, relax.TupleGetItem(self._operand(step.source), step.index))
            else:
                self._convert(step)
        for (_, var), operand in zip(self._graph.goals, self._steps.goals, strict=True):
            value = self._operand(operand)
            if not value.same_as(var):
                self._bindings.append(relax.VarBinding(var, value))
        return self._bindings

    def _bind(self, store: int, expr: Any) -> None:
        """Binds to the variable that the value had in the input, or to a new one named after it."""
        node = self._steps.variables.get(store)
        if node is not None:
            self._bindings.append(relax.VarBinding(self._graph.nodes[node].var, expr))
            self._values[store] = self._graph.nodes[node].var
        else:
            self._values[store] = self._bind_new(store, expr)

    def _bind_new(self, store: int, expr: Any) -> Any:
        if type(expr) is not relax.Call:
            expr = self._builder.normalize(expr)
        node = self._steps.origins[store]
        name = self._graph.nodes[node].label if node >= 0 else "relaid"
        var = relax.DataflowVar(name, expr.ty)
        self._bindings.append(relax.VarBinding(var, expr))
        return var

    def _operand(self, operand: Operand) -> Any:
        if isinstance(operand, ConstantUse):
            return self._constants.expr(operand.constant, operand.format)
        return self._values[operand]

    def _run(self, step: Run) -> Any:
        signature = self._signatures[step.signature]
        template = self._written.get(step.signature) if step.flow is None else self._funcs.template(step)
        if template is None:
            template = self._written[step.signature] = Template(signature.template)
        return template.over([self._operand(o) for o in step.operands], typed=True)

    def _convert(self, step: Convert) -> None:
        value = self._values[step.source]
        templates = self._rewriter.templates(step.type, step.before, step.after)
        if not templates:
            self._values[step.store] = value
            return
        *first, last = templates
        for template in first:
            value = self._bind_new(step.store, template.over([value], typed=True))
        self._bind(step.store, last.over([value], typed=True))


class _Rewriter:
    """Layout rewrites as templates of one operand: one where the maps compose, else two, via row-major."""

    def __init__(self, builder: Any, symbols: dict[str, Any]):
        self._builder, self._symbols = builder, symbols
        self._known: dict[Any, list[Template]] = {}

    def templates(self, ty: TensorType, before: Format, after: Format) -> list[Template]:
        """To be applied one after the other."""
        key = (ty, before.key, after.key)
        if key not in self._known:
            self._known[key] = [Template(call) for call in self._made(ty, before, after)]
        return self._known[key]

    def _made(self, ty: TensorType, before: Format, after: Format) -> list[Any]:
        if before.serves_as(after):
            return [] if before.physical_shape == after.physical_shape else [self._reshape(ty, before, after)]
        inverse = before.index_map.inverse()
        keeps_padding = before.padding == after.padding and after.fill in (before.fill, UNDEF)
        direct = after.index_map.after(inverse) if inverse is not None and keeps_padding else None
        if direct is not None:
            return [self._rewrite(direct, ty, before, after)]
        assert inverse is not None, "a fused symbolic axis is never the source of a copy"
        return self._via_row_major(ty, before, after, keeps_padding)

    def _via_row_major(self, ty: TensorType, before: Format, after: Format, keeps_padding: bool) -> list[Any]:
        """Unpack, crop, pad, pack; what changes nothing is left out."""
        inverse = before.index_map.inverse()
        assert inverse is not None
        unpacked = Format.make(IndexMap.identity(before.padded_shape), padding=before.padding, fill=before.fill)
        calls = [] if inverse.is_identity else [self._rewrite(inverse, ty, before, unpacked)]
        if not keeps_padding:
            calls += [self._crop(ty, before)] if before.is_padded else []
            calls += [self._pad(ty, after)] if after.is_padded else []
        packed = Format.make(IndexMap.identity(after.padded_shape), padding=after.padding, fill=after.fill)
        if not after.index_map.is_identity:
            calls.append(self._rewrite(after.index_map, ty, packed, after))
        return calls

    def _crop(self, ty: TensorType, before: Format) -> Any:
        axes = [axis for axis, border in enumerate(before.padding) if border != (0, 0)]
        begin = [before.padding[axis][0] for axis in axes]
        end = [b + int(ty.shape[axis]) for b, axis in zip(begin, axes, strict=True)]
        source = relax.Var("x", self._tensor(before.padded_shape, ty.dtype))
        return self._builder.normalize(relax.op.strided_slice(source, axes, begin, end))

    def _pad(self, ty: TensorType, after: Format) -> Any:
        widths = [width for border in after.padding for width in border]
        fill = 0.0 if after.fill is UNDEF or after.fill is None else after.fill  # any bits will do, 0 is tame
        source = relax.Var("x", self._tensor(ty.shape, ty.dtype))
        return self._builder.normalize(relax.op.nn.pad(source, widths, "constant", fill))

    def _tensor(self, shape: Sequence[Extent], dtype: str) -> Any:
        return relax.TensorType(relax.ShapeExpr([expr_of(e, self._symbols) for e in shape]), dtype)

    def _rewrite(self, index_map: IndexMap, ty: TensorType, before: Format, after: Format) -> Any:
        source = relax.Var("x", relax_type(ty, before, self._symbols))
        if index_map.keeps_order:
            return self._reshape(ty, before, after)
        if (axes := index_map.permuted_axes) is not None:
            return self._builder.normalize(relax.op.permute_dims(source, list(axes)))
        return self._builder.normalize(relax.op.layout_transform(source, index_map=to_tvm(index_map)))

    def _reshape(self, ty: TensorType, before: Format, after: Format) -> Any:
        source = relax.Var("x", relax_type(ty, before, self._symbols))
        return self._builder.normalize(relax.op.reshape(source, relax_type(ty, after, self._symbols).shape))
