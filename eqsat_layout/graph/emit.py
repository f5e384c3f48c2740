"""Steps to Relax: the chosen plan of each region becomes bindings again.

In: the module, and per region its graph and steps. Out: a new module, equivalent and well formed. Values that stay
row-major keep the variables that they had; what lies in another format is a Relax op where one says it, ``call_tir`` of
the re-laid-out PrimFunc where none does. The input module is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import ir, relax

from eqsat_layout.graph.constants import ConstantPool, Evaluate
from eqsat_layout.graph.cuts import cut_alike, taken_apart
from eqsat_layout.graph.frozen import FROZEN_ATTRIBUTE
from eqsat_layout.graph.graph import Graph, Signature, TensorType
from eqsat_layout.graph.legalize import is_zero_constant
from eqsat_layout.graph.loose_symbols import with_loose_symbols
from eqsat_layout.graph.public_names import without_public_name
from eqsat_layout.graph.put_back import put_back
from eqsat_layout.graph.relax_form import Request, known_type, relax_forms, relax_type, stand_ins
from eqsat_layout.graph.rewrite_form import write_relax
from eqsat_layout.graph.steps import ConstantUse, Convert, Given, Inside, Operand, ResultPart, Run, Steps
from eqsat_layout.graph.templates import Template
from eqsat_layout.graph.vdevices import on_device, ordinary_device
from eqsat_layout.maps import Format
from eqsat_layout.tir.callbacks import CALLBACK_ATTRIBUTE
from eqsat_layout.tir.flow import Flow, complete
from eqsat_layout.tir.layout_rewrite import LayoutRewrite
from eqsat_layout.tir.rewrite import relayout
from eqsat_layout.tir.rewrite_form import write_primfunc
from eqsat_layout.tir.symbol_names import symbol_name


def emit_module(
    mod: Any,
    regions: Sequence[tuple[Graph, Steps]],
    signatures: Mapping[str, Signature],
    evaluate: Evaluate,
    *,
    as_tir: bool = False,
    bound: dict[Any, tuple[Graph, int]] | None = None,
    read: int | None = None,
) -> Any:
    """``mod`` with the bindings of each region replaced by its steps; ``evaluate`` runs ops over constants.

    ``as_tir``: every op whose TIR is known as a ``call_tir`` of it, for a build; else as a Relax op where one says it.
    ``bound`` is told of every variable that is bound: its region, and the store of the step that makes it. ``read``:
    new constants of more elements than that are zeros; None where all are to be right.
    """
    result = mod.clone()
    funcs = _PrimFuncs(result, signatures, as_tir)
    by_function: dict[str, list[tuple[Graph, Steps]]] = {}
    for graph, steps in regions:
        by_function.setdefault(graph.function, []).append((graph, cut_alike(put_back(steps, signatures), signatures)))
    for name, own in by_function.items():
        funcs.prepare([s for _, s in own])
        global_var = result.get_global_var(name)
        result.update_func(
            global_var, _rebuilt(result[global_var], own, signatures, funcs, ConstantPool(evaluate, read), bound)
        )
    return result


def _rebuilt(
    function: Any,
    regions: Sequence[tuple[Graph, Steps]],
    signatures: Mapping[str, Signature],
    funcs: _PrimFuncs,
    constants: ConstantPool,
    bound: dict[Any, tuple[Graph, int]] | None,
) -> Any:
    builder = relax.BlockBuilder()
    builder.begin_scope(list(function.params))
    blocks = list(function.body.blocks)
    constants.prepare(use.constant for _, steps in regions for use in steps.constants())
    for position in {graph.block for graph, _ in regions}:
        own = sorted((g.bindings, i) for i, (g, _) in enumerate(regions) if g.block == position)
        bindings = list(blocks[position].bindings)
        new: list[Any] = []
        end = 0
        for (low, high), i in own:
            new += bindings[end:low]
            emitter = _RegionEmitter(*regions[i], signatures, funcs, constants, builder)
            new += emitter.bindings()
            if bound is not None:
                bound.update((var, (regions[i][0], store)) for var, store in emitter.stores.items())
            end = high
        blocks[position] = relax.DataflowBlock(new + bindings[end:])
    builder.end_scope()
    body = builder.normalize(relax.SeqExpr(blocks, function.body.body))
    result = relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)
    if function.attrs is not None and FROZEN_ATTRIBUTE in function.attrs:
        result = result.without_attr(FROZEN_ATTRIBUTE)  # the annotation is carried out
    return result


class _PrimFuncs:
    """Re-laid-out ops as template calls: a Relax op where one says it, else a PrimFunc added to the module.

    ``as_tir``: always the PrimFunc, also of ops that run as they were written.
    """

    def __init__(self, mod: Any, signatures: Mapping[str, Signature], as_tir: bool):
        self._mod, self._signatures, self.as_tir = mod, signatures, as_tir
        self._templates: dict[tuple[str, Flow | None], Template] = {}
        self._present = {str(g.name_hint): g for g in mod.get_global_vars()}
        self._builder = relax.BlockBuilder(mod)

    def prepare(self, programs: Sequence[Steps]) -> None:
        """Makes what the steps need, all at once, each once."""
        requests: dict[tuple[str, Flow | None], Request] = {}
        for program in programs:
            for step in program.steps:
                if not isinstance(step, Run) or (step.signature, step.flow) in self._templates:
                    continue
                if self._is_as_written(step):
                    self._templates[step.signature, step.flow] = Template(self._as_written(step.signature))
                elif (step.signature, step.flow) not in requests:
                    requests[step.signature, step.flow] = self._request(step.signature, step.flow)
        forms = [None] * len(requests) if self.as_tir else relax_forms(list(requests.values()))
        for (key, request), form in zip(requests.items(), forms, strict=True):
            self._templates[key] = Template(form if form is not None else self._call_tir(request))

    def template(self, step: Run) -> Template:
        """The op in the formats of the step."""
        return self._templates[step.signature, step.flow]

    def _request(self, key: str, flow: Flow | None) -> Request:
        signature = self._signatures[key]
        assert signature.computation is not None, "only what is understood is ever given another format"
        if flow is None:  # a PrimFunc of flat memory that is called on buffers elsewhere
            flow = complete(signature.computation, *signature.as_written)
        elif signature.frozen is not None:  # only the ends are given, what lies between is derived
            flow = complete(signature.computation, flow.operands, flow.results)
        return Request(signature, flow, relayout(signature.func, signature.computation, flow))

    def _is_as_written(self, step: Run) -> bool:
        """A frozen op that is frozen as it stands is given formats too."""
        signature = self._signatures[step.signature]
        if step.flow is None or signature.frozen is None:
            return step.flow is None and not signature.is_specialised
        return all(f.is_row_major for f in (*step.flow.operands, *step.flow.results))

    def _as_written(self, key: str) -> Any:
        """The op's own template; a PrimFunc that the input does not have (its rewrites were hoisted) is added."""
        signature = self._signatures[key]
        template, func = signature.template, signature.func
        if not isinstance(template, ir.Call) or getattr(template.op, "name", "") != "relax.call_tir":
            return template if not self.as_tir or func is None else self._written_tir(signature)
        present = self._present.get(str(template.args[0].name_hint))
        if func is None or (present is not None and present.same_as(template.args[0])):
            return template
        global_var = self.added(func, f"{template.args[0].name_hint}_core")
        args = [global_var, *list(template.args)[1:]]
        return relax.Call(template.op, args, template.attrs, template.ty_args, ret_ty=template.ty)

    def _written_tir(self, signature: Signature) -> Any:
        """The PrimFunc that the op is."""
        global_var = self.added(signature.func, _short_name(signature))
        symbols = dict(signature.symbols)
        operands = [relax_type(known_type(t), None, symbols) for t in signature.operands]
        results = [relax_type(known_type(t), None, symbols) for t in signature.results]
        leaves = relax.Tuple([relax.Var(f"p{i}", ty) for i, ty in enumerate(operands)])
        return self._builder.normalize(relax.call_tir(global_var, leaves, results if results[1:] else results[0]))

    def added(self, func: Any, name: str) -> Any:
        """The variable of ``func``, which is in the module from now on."""
        func = without_public_name(func)
        if func.attrs is not None and func.attrs.get(CALLBACK_ATTRIBUTE) is not None:
            func = func.without_attr(CALLBACK_ATTRIBUTE)  # the callback knows the function that it was made of
        global_var = self._builder.add_func(func, name)  # gives it a type, a free name, and shares equal functions
        self._mod.update_func(global_var, func)
        return global_var

    def _call_tir(self, request: Request) -> Any:
        func = request.func
        if request.signature.frozen is not None:
            func = func.with_attr(FROZEN_ATTRIBUTE, True)  # frozen layouts stay frozen
        func, loose = with_loose_symbols(func, len(request.signature.operands))
        global_var = self.added(func, f"{_short_name(request.signature)}_relaid")
        types = [
            relax_type(known_type(t), f, request.symbols)
            for t, f in zip(request.signature.results, request.flow.results, strict=True)
        ]
        operands = relax.Tuple([*stand_ins(request), *(request.symbols[symbol_name(var)] for var in loose)])
        return self._builder.normalize(relax.call_tir(global_var, operands, types if types[1:] else types[0]))


def _short_name(signature: Signature) -> str:
    return signature.name.removeprefix("relax.").replace(".", "_")


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
        self._rewriter = _Rewriter(builder, funcs, graph.symbols)
        self._device = ordinary_device(node.var.ty for node in graph.nodes if node.var is not None)
        self._values: dict[int, Any] = {}
        self._bindings: list[Any] = []
        self.stores: dict[Any, int] = {}

    def bindings(self) -> list[Any]:
        for step in self._steps.steps:
            if isinstance(step, Given):
                self._values[step.store] = self._graph.nodes[step.node].var
            elif isinstance(step, Run):
                self._bind(step.store, self._run(step))
            elif isinstance(step, ResultPart):
                self._bind(step.store, relax.TupleGetItem(self._operand(step.source), step.index))
            elif isinstance(step, Inside):
                self._alias(step.store, self._operand(step.source))
            else:
                self._convert(step)
        for (_, var), operand in zip(self._graph.goals, self._steps.goals, strict=True):
            value = self._operand(operand)
            if not value.same_as(var):
                self._bindings.append(relax.VarBinding(var, value))
        return self._bindings

    def _bind(self, store: int, expr: Any) -> None:
        """Binds to the variable that the value had in the input, or to a new one named after it."""
        expr = on_device(expr, self._device)
        node = self._steps.variables.get(store)
        if node is not None:
            self._bindings.append(relax.VarBinding(self._graph.nodes[node].var, expr))
            self._values[store] = self._graph.nodes[node].var
            self.stores[self._values[store]] = store
        else:
            self._values[store] = self._bind_new(store, expr)

    def _alias(self, store: int, value: Any) -> None:
        """The buffer is used as it is; a variable that the outside knows it by is bound to it all the same."""
        if self._steps.variables.get(store) is None:
            self._values[store] = value
        else:
            self._bind(store, value)

    def _bind_new(self, store: int, expr: Any) -> Any:
        if type(expr) is not relax.Call:
            expr = self._builder.normalize(expr)
        node = self._steps.origins[store]
        name = self._graph.nodes[node].label if node >= 0 else "relaid"
        var = relax.DataflowVar(name, expr.ty)
        self._bindings.append(relax.VarBinding(var, expr))
        self.stores[var] = store
        return var

    def _operand(self, operand: Operand) -> Any:
        if isinstance(operand, ConstantUse):
            made = self._constants.expr(operand.constant, operand.format)
            return self._apart(made) if is_zero_constant(made) and not made.same_as(operand.constant.source) else made
        return self._values[operand]

    def _apart(self, zero: Any) -> Any:
        """A zero with axes that became a number: TVM would make it a part of kernels, where NaN times 0 is 0."""
        var = relax.DataflowVar("zero", zero.ty)
        self._bindings.append(relax.VarBinding(var, zero))
        return var

    def _run(self, step: Run) -> Any:
        return self._funcs.template(step).over([self._operand(o) for o in step.operands], typed=True)

    def _convert(self, step: Convert) -> None:
        value, before = self._values[step.source], step.before
        if step.after.index_map.inverse() is None and not before.serves_as(step.after):
            apart = taken_apart(step.after)  # no kernel writes an axis that fuses a symbolic size with others
            template = self._rewriter.template(step.type, before, apart)
            assert template is not None, "what can be taken apart is another format"
            value, before = self._bind_new(step.store, template.over([value], typed=True)), apart
        template = self._rewriter.template(step.type, before, step.after)
        if template is None:
            self._alias(step.store, value)
        else:
            self._bind(step.store, template.over([value], typed=True))


class _Rewriter:
    """Layout rewrites as templates of one operand: a Relax op where one says it, else one kernel."""

    def __init__(self, builder: Any, funcs: _PrimFuncs, symbols: dict[str, Any]):
        self._builder, self._funcs, self._symbols = builder, funcs, symbols
        self._known: dict[Any, Template | None] = {}

    def template(self, ty: TensorType, before: Format, after: Format) -> Template | None:
        """The rewrite; None where the buffer is used as it is."""
        key = (ty, before.key, after.key)
        if key not in self._known:
            call = self._made(ty, before, after)
            self._known[key] = None if call is None else Template(call)
        return self._known[key]

    def _made(self, ty: TensorType, before: Format, after: Format) -> Any:
        result = relax_type(ty, after, self._symbols)
        source = relax.Var("x", relax_type(ty, before, self._symbols))
        is_empty = 0 in ty.shape  # Relax's reshape takes a 0 for "as it was"
        if before.serves_as(after):
            if before.physical_shape == after.physical_shape:
                return None
            if not is_empty:
                return self._builder.normalize(relax.op.reshape(source, result.shape))
        rewrite = LayoutRewrite.between(before, after)
        assert rewrite is not None, "a fused symbolic axis is never the source of a copy"
        may_be_relax = rewrite.is_flat and not is_empty and not self._funcs.as_tir
        calls = write_relax(rewrite, ty.dtype, self._symbols) if may_be_relax else []
        if len(calls) == 1 and not (ty.dtype == "bool" and calls[0].op.name == "relax.layout_transform"):
            return calls[0]  # TVM can't legalise a layout_transform of bool
        func, loose = with_loose_symbols(write_primfunc(rewrite, ty.dtype), 1)
        global_var = self._funcs.added(func, "layout_rewrite")
        operands = relax.Tuple([source, *(self._symbols[symbol_name(var)] for var in loose)])
        return self._builder.normalize(relax.call_tir(global_var, operands, result))
