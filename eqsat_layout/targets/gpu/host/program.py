"""From a Relax module of kernels to a host plan.

In: a module whose functions bind calls of PrimFuncs, tuples and views of memory, and what those PrimFuncs launch. Out:
:class:`HostPlan` and the bytes of its constants. What the host of a device can't do is a :class:`TargetError` that
names the op.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import tvm
from tvm import relax

from eqsat_layout.errors import TargetError
from eqsat_layout.graph.public_names import is_public
from eqsat_layout.graph.refused_ops import refused_op
from eqsat_layout.graph.vdevices import scope_of
from eqsat_layout.maps import GLOBAL
from eqsat_layout.targets.gpu.host.launches import launches_of
from eqsat_layout.targets.gpu.host.plan import (
    Allocation,
    Assertion,
    Cast,
    HostFunction,
    HostPlan,
    Launch,
    StoredConstant,
    Symbol,
)
from eqsat_layout.targets.gpu.host.plan_writer import ImageOf, PlanWriter, stored_bytes
from eqsat_layout.targets.gpu.host.reuse import with_shared_memories
from eqsat_layout.targets.gpu.host.size_expressions import condition_of, size_expression
from eqsat_layout.targets.gpu.host.sized_by_data import sized_by_data
from eqsat_layout.targets.gpu.host.sizes import LARGEST, Size, operation, product

_IN_PLACE: Final = "relax.call_tir_inplace"
_ASSERTS: Final = "relax.run.assert_op"
_BRANCHES: Final = "chooses by sizes only, where a function that is called by name ends"
_LAUNCHED: Final = ("relax.call_tir", _IN_PLACE)
_VIEWS: Final = ("relax.reshape", "relax.memory_view", "relax.flatten", "relax.expand_dims", "relax.squeeze")


def host_plan(
    mod: tvm.IRModule, hosts: Mapping[str, Any], views: Collection[str] = (), image_of: ImageOf | None = None
) -> tuple[HostPlan, list[memoryview]]:
    """``hosts``: the host functions of PrimFuncs, by name; ``views``: PrimFuncs whose results are their operands.

    ``image_of``: layers, rows and columns of a tensor by its scope. The bytes are those of the constants, in order.
    """
    writer = PlanWriter(mod, hosts, views, image_of)
    functions = [
        _Body(writer, str(var.name_hint)).written(func)
        for var, func in mod.functions_items()
        if isinstance(func, relax.Function) and is_public(func)
    ]
    starts, data = [], writer.data
    place = 0
    for one in data:
        starts.append(StoredConstant(place, len(one)))
        place += len(one)
    plan = HostPlan(tuple(writer.memories), tuple(writer.values), tuple(starts), tuple(functions))
    return with_shared_memories(plan), data


@dataclass(frozen=True)
class _Number:
    """What a kernel is given that is no tensor."""

    size: Size


class _Body:
    """One function: its bindings in order. ``_known``: by variable a value's number, or a list of such."""

    def __init__(self, writer: PlanWriter, name: str, callers: tuple[str, ...] = ()) -> None:
        self._writer, self._name, self._callers = writer, name, callers
        self._known: dict[Any, Any] = {}
        self._symbols: dict[Any, Size] = {}
        self._inputs: list[int] = []
        self._launches: list[Launch] = []
        self._casts: list[Cast] = []
        self._assertions: list[Assertion] = []
        self._kept: set[int] = set()
        self._conditions: dict[Any, Size] = {}
        self._variants: list[HostFunction] = []

    def written(self, func: Any) -> HostFunction:
        leaves = [leaf for param in func.params for leaf in _leaves(str(param.name), param.ty)]
        symbols = self._read_symbols([ty for _, ty in leaves])
        self._inputs = [self._input(name, ty) for name, ty in leaves]
        self._kept = {self._writer.values[number].memory for number in self._inputs}
        given = iter(self._inputs)
        for param in func.params:
            self._known[param] = _nested(param.ty, given)
        names = tuple(name for name, _ in leaves)
        made = self._chosen(func.body, names, tuple(symbols))
        variants = (replace(one, name=f"{made.name}#{number}") for number, one in enumerate(made.variants))
        return replace(made, variants=tuple(map(self._writer.with_used_symbols, variants)))

    def _chosen(self, body: Any, names: tuple[str, ...], symbols: tuple[Symbol, ...]) -> HostFunction:
        """What ends in branches by its sizes is a function with variants."""
        bindings = [binding for block in body.blocks for binding in block.bindings]
        last = bindings[-1] if bindings and body.body.same_as(bindings[-1].var) else None
        branch = last.value if last is not None and isinstance(last.value, relax.If) else None
        for binding in bindings if branch is None else bindings[:-1]:
            if branch is not None and binding.var.same_as(branch.cond):
                self._conditions[binding.var] = self._condition(binding)
            else:
                self._known[binding.var] = self._bound(binding)
        if branch is not None and branch.cond in self._conditions:
            fits = self._conditions[branch.cond]
            own = self._copy()._chosen(branch.true_branch, names, symbols)
            rest = self._chosen(branch.false_branch, names, symbols)
            return replace(rest, variants=(*_under(fits, own), *rest.variants))
        results = self._of(body.body if branch is None else branch)
        done = (tuple(self._launches), results, tuple(self._casts), tuple(self._assertions))
        return HostFunction(self._name, tuple(self._inputs), names, symbols, *done)

    def _copy(self) -> _Body:
        """For one of two branches."""
        own = _Body(self._writer, self._name, self._callers)
        own._known, own._symbols, own._inputs = dict(self._known), dict(self._symbols), list(self._inputs)
        own._launches, own._casts, own._kept = list(self._launches), list(self._casts), set(self._kept)
        own._assertions = list(self._assertions)
        return own

    def _condition(self, binding: Any) -> Size:
        """The condition of a branch: a PrimFunc that compares sizes."""
        value = binding.value
        name = str(getattr(getattr(value, "op", None), "name", ""))
        fields = list(value.args[1].fields) if name == _LAUNCHED[0] else []
        if not fields or not all(isinstance(field.ty, tvm.ir.PrimType) for field in fields):
            said = f"the branch by {binding.var}: its host {_BRANCHES}"
            raise TargetError(f"{self._name}: a program for a device can't hold {said}")
        sizes = [size_expression(field, self._symbols) for field in fields]
        return condition_of(self._writer.mod[value.args[0]], sizes)

    def _results(self, func: Any) -> Any:
        for block in func.body.blocks:
            for binding in block.bindings:
                self._known[binding.var] = self._bound(binding)
        return self._of(func.body.body)

    def _read_symbols(self, types: Sequence[Any]) -> list[Symbol]:
        found: list[Symbol] = []
        for number, ty in enumerate(types):
            for axis, extent in enumerate(getattr(getattr(ty, "shape", None), "values", None) or ()):
                if isinstance(extent, tvm.ir.Var) and extent not in self._symbols:
                    name = f"s{len(found)}"
                    self._symbols[extent] = name
                    found.append(Symbol(name, number, axis))
        return found

    def _input(self, name: str, ty: Any) -> int:
        if not isinstance(ty, relax.TensorType):
            raise TargetError(f"{self._name}: parameter {name} is {ty}, but programs for devices take tensors")
        return self._writer.new(self._shape(ty), str(ty.dtype), scope_of(ty))

    def _shape(self, ty: Any) -> list[Size]:
        extents = getattr(ty.shape, "values", None)
        if extents is None:
            raise TargetError(f"{self._name}: the shape of {ty} is not known")
        return [size_expression(extent, self._symbols) for extent in extents]

    def _bound(self, binding: Any) -> Any:
        value = binding.value
        if isinstance(binding, relax.MatchCast):
            return self._cast(self._of(value), binding.ty)
        if isinstance(value, tvm.ir.Call):
            return self._called(value, binding.var)
        return self._of(value)

    def _cast(self, known: Any, ty: Any) -> Any:
        """What is said to be of a type, which is checked before anything is launched."""
        if isinstance(known, relax.ShapeExpr):
            for size, extent in zip(known.values, ty.values or (), strict=False):
                self._casts.append(
                    Cast(
                        size_expression(size, self._symbols), size_expression(extent, self._symbols), f"a size, {size},"
                    )
                )
        if not isinstance(known, int) or getattr(getattr(ty, "shape", None), "values", None) is None:
            return known
        value = self._writer.values[known]
        for size, extent in zip(value.shape, ty.shape.values, strict=True):
            if isinstance(extent, tvm.ir.Var):
                self._symbols.setdefault(extent, size)
        said = self._shape(ty)
        wrong = [(a, b) for a, b in zip(value.shape, said, strict=True) if a != b]
        self._casts += [Cast(a, b, f"an extent of a tensor of {value.dtype} {list(value.shape)}") for a, b in wrong]
        shape = [a if isinstance(a, int) else b for a, b in zip(value.shape, said, strict=True)]
        return known if shape == list(value.shape) else self._with_shape(known, shape)

    def _with_shape(self, known: int, shape: Sequence[Size]) -> int:
        """The same tensor; an input that nothing has read yet gets memory whose size is as well known as its own."""
        value = self._writer.values[known]
        is_read = any(argument.memory == value.memory for one in self._launches for argument in one.arguments)
        if known not in self._inputs or is_read:
            return self._writer.value(shape, value.dtype, value.scope, value.memory)
        own = self._writer.new(shape, value.dtype, value.scope)
        self._inputs[self._inputs.index(known)] = own
        self._known = {var: _exchanged(one, known, own) for var, one in self._known.items()}
        self._kept.add(self._writer.values[own].memory)
        return own

    def _of(self, expr: Any) -> Any:
        if isinstance(expr, relax.Tuple):
            return [self._of(field) for field in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return self._of(expr.tuple_value)[int(expr.index)]
        if isinstance(expr, tvm.ir.GenericConst):
            return self._writer.constant(expr)
        if isinstance(expr, relax.ShapeExpr):
            return expr
        if isinstance(expr, tvm.ir.Var) and expr in self._known:
            return self._known[expr]
        if isinstance(expr, relax.If):
            said = f"the branch by {expr.cond}: its host {_BRANCHES}"
        else:
            said = f"{type(expr).__name__} {expr}"
        raise TargetError(f"{self._name}: a program for a device can't hold {said}")

    def _called(self, call: Any, var: Any) -> Any:
        if isinstance(call.op, tvm.ir.GlobalVar) and isinstance(self._writer.mod[call.op], relax.Function):
            return self._inside(str(call.op.name_hint), call)
        name = str(getattr(call.op, "name", call.op))
        if name in _LAUNCHED:
            return self._launched(call)
        if name in _VIEWS:
            return self._viewed(self._of(call.args[0]), var.ty)
        if isinstance(call.op, relax.ExternFunc) and str(call.op.global_symbol) == _ASSERTS:
            return self._asserted(*call.args)
        if data_say := sized_by_data(self._writer.mod, call):
            raise TargetError(f"{self._name}: {var.name} is {data_say}")
        refused = refused_op(self._writer.mod)
        why = f": TVM can't build {refused}" if refused else ""
        raise TargetError(f"{self._name}: {var.name} is {name}, which no kernel does{why}")

    def _inside(self, name: str, call: Any) -> Any:
        """What a function of the module gives here."""
        if name in self._callers:
            raise TargetError(f"{self._name}: {name} calls itself, which programs for devices can't")
        own = _Body(self._writer, name, (*self._callers, name))
        own._launches, own._casts, own._kept = self._launches, self._casts, self._kept
        own._assertions = self._assertions
        func = self._writer.mod[call.op]
        for param, arg in zip(func.params, call.args, strict=True):
            own._known[param] = self._of(arg)
            own._learn(param.ty, own._known[param])
        return own._results(func)

    def _learn(self, ty: Any, value: Any) -> None:
        """The sizes that the types of what a function is given stand for."""
        if isinstance(value, list):
            for field, one in zip(ty.fields, value, strict=True):
                self._learn(field, one)
            return
        for extent, size in zip(getattr(ty.shape, "values", ()), self._writer.values[value].shape, strict=False):
            if isinstance(extent, tvm.ir.Var):
                self._symbols[extent] = size

    def _viewed(self, number: int, ty: Any) -> int:
        source = self._writer.values[number]
        if source.scope != GLOBAL:
            raise TargetError(f"{self._name}: an image of {source.shape} can't be looked at as {ty}")
        return self._writer.value(self._shape(ty), source.dtype, GLOBAL, source.memory)

    def _launched(self, call: Any) -> Any:
        name = str(call.args[0].name_hint)
        fields = list(call.args[1].fields)
        (out,) = call.ty_args
        if name in self._writer.views:
            return self._viewed(self._of(fields[0]), out)
        types = list(out.fields) if isinstance(out, relax.TupleType) else [out]
        given = list(map(self._given, fields))
        written = list(call.attrs.inplace_indices) if str(call.op.name) == _IN_PLACE else [-1] * len(types)
        results = [
            self._writer.new(self._shape(ty), str(ty.dtype), scope_of(ty))
            if place < 0
            else self._own(given[place], name)
            for ty, place in zip(types, written, strict=True)
        ]
        host = self._writer.hosts[name]
        given += [result for result, place in zip(results, written, strict=True) if place < 0]
        symbols = self._symbols_of(host, given, call)
        memories = [None if isinstance(one, _Number) else self._writer.values[one].memory for one in given]
        memories += [None] * (len(list(host.params)) - len(memories))
        launches = launches_of(name, host, memories, symbols, self._buffer)
        for one in launches:
            self._check_narrow([*one.groups, *one.items], f"kernel {one.kernel}", "threads")
        self._launches += launches
        return results if isinstance(out, relax.TupleType) else results[0]

    def _asserted(self, condition: Any, text: Any, *numbers: Any) -> list[Any]:
        """What ``relax.assert_op`` gives: nothing."""
        said = str(text.value)
        for one in numbers:
            said = said.replace("{}", str(getattr(one, "value", one)), 1)
        if isinstance(condition.ty, tvm.ir.PrimType):
            self._casts.append(Cast(size_expression(condition, self._symbols), 1, f"an assertion, {said!r},"))
        else:
            self._assertions.append(Assertion(self._of(condition), said))
        return []

    def _own(self, number: int | _Number, name: str) -> int:
        """What a kernel writes into: nothing that was given to the function, nor a constant."""
        assert isinstance(number, int), name
        memory = self._writer.values[number].memory
        if memory in self._kept or self._writer.memories[memory].constant is not None:
            raise TargetError(f"{self._name}: {name} writes into an input or a constant, which devices keep")
        return number

    def _given(self, field: Any) -> int | _Number:
        """An operand of a kernel: a tensor, or a number."""
        if isinstance(field.ty, tvm.ir.PrimType):
            return _Number(size_expression(field, self._symbols))
        number = self._of(field)
        assert isinstance(number, int), field
        return number

    def _symbols_of(self, host: Any, given: Sequence[int | _Number], call: Any) -> dict[Any, Size]:
        """The sizes that variables of the PrimFunc are here: from shapes of what it is given, and given as they are."""
        found: dict[Any, Size] = {}
        for param, one in zip(host.params, given, strict=False):
            if isinstance(one, _Number):
                found[param] = one.size
                continue
            shape = self._writer.values[one].shape
            for extent, size in zip(param.ty.shape, shape, strict=True):
                if isinstance(extent, tvm.ir.Var):
                    found[extent] = size
            self._check_narrow(shape, f"a tensor of {list(shape)}", "elements")
        last = list(call.args[2].values) if len(call.args) > 2 else []
        for param, size in zip(list(host.params)[len(given) :], last, strict=True):
            found[param] = size_expression(size, self._symbols)
        return found

    def _check_narrow(self, sizes: Sequence[Size], what: str, counted: str) -> None:
        """Kernels of sizes that are not known count in 32 bits."""
        fits = operation("le", product(sizes), LARGEST)
        if not isinstance(fits, int) and not any(one.size == fits for one in self._casts):
            text = f"whether {what} has at most {LARGEST} {counted}, as its kernels need,"
            self._casts.append(Cast(fits, 1, text))

    def _buffer(self, elements: Size, dtype: str, zeros: bool) -> int:
        self._check_narrow([elements], f"what kernels of {self._name} keep for each other", "elements")
        return self._writer.allocated(Allocation(product([elements, stored_bytes(dtype)]), zeros=zeros))


def _under(fits: Size, function: HostFunction) -> tuple[HostFunction, ...]:
    """A function and its variants as variants of another one, where ``fits`` is true."""
    own = (replace(one, fits=operation("and", fits, one.fits)) for one in function.variants)
    return (*own, replace(function, fits=fits, variants=()))


def _exchanged(known: Any, old: int, new: int) -> Any:
    if isinstance(known, list):
        return [_exchanged(one, old, new) for one in known]
    return new if known == old else known


def _leaves(name: str, ty: Any) -> Iterator[tuple[str, Any]]:
    """The tensors of a parameter, by name."""
    if not isinstance(ty, relax.TupleType):
        yield name, ty
        return
    for number, field in enumerate(ty.fields):
        yield from _leaves(f"{name}[{number}]", field)


def _nested(ty: Any, given: Iterator[int]) -> Any:
    return [_nested(field, given) for field in ty.fields] if isinstance(ty, relax.TupleType) else next(given)
