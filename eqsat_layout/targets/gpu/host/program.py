"""From a Relax module of kernels to a host plan.

In: a module whose functions bind calls of PrimFuncs, tuples and views of memory, and what those PrimFuncs launch. Out:
:class:`HostPlan` and the bytes of its constants. What the host of a device can't do is a :class:`TargetError` that
names the op.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import tvm
from tvm import relax

from eqsat_layout.errors import TargetError
from eqsat_layout.graph.public_names import is_public
from eqsat_layout.graph.refused_ops import refused_op
from eqsat_layout.graph.skeleton import data_of, kind_of
from eqsat_layout.graph.vdevices import scope_of
from eqsat_layout.maps import GLOBAL
from eqsat_layout.targets.gpu.host.launches import launches_of
from eqsat_layout.targets.gpu.host.plan import (
    Allocation,
    HostFunction,
    HostPlan,
    Launch,
    StoredConstant,
    Symbol,
    TensorInMemory,
)
from eqsat_layout.targets.gpu.host.reuse import with_shared_memories
from eqsat_layout.targets.gpu.host.size_expressions import size_of
from eqsat_layout.targets.gpu.host.sizes import Size, product

ImageOf: TypeAlias = Callable[[Sequence[Size], str], tuple[Size, Size, Size]]

_IN_PLACE: Final = "relax.call_tir_inplace"
_LAUNCHED: Final = ("relax.call_tir", _IN_PLACE)
_VIEWS: Final = ("relax.reshape", "relax.memory_view", "relax.flatten", "relax.expand_dims", "relax.squeeze")


def host_plan(
    mod: tvm.IRModule, hosts: Mapping[str, Any], views: Collection[str] = (), image_of: ImageOf | None = None
) -> tuple[HostPlan, list[memoryview]]:
    """``hosts``: the host functions of PrimFuncs, by name; ``views``: PrimFuncs whose results are their operands.

    ``image_of``: layers, rows and columns of a tensor by its scope. The bytes are those of the constants, in order.
    """
    writer = _Writer(mod, hosts, views, image_of)
    functions = [
        writer.function(str(var.name_hint), func)
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


class _Writer:
    def __init__(
        self, mod: tvm.IRModule, hosts: Mapping[str, Any], views: Collection[str], image_of: ImageOf | None
    ) -> None:
        self.mod, self.hosts, self.views, self._image_of = mod, hosts, views, image_of
        self.memories: list[Allocation] = []
        self.values: list[TensorInMemory] = []
        self.data: list[memoryview] = []
        self._constants: dict[Any, int] = {}

    def function(self, name: str, func: Any) -> HostFunction:
        return _Body(self, name).written(func)

    def allocated(self, memory: Allocation) -> int:
        self.memories.append(memory)
        return len(self.memories) - 1

    def value(self, shape: Sequence[Size], dtype: str, scope: str, memory: int) -> int:
        self.values.append(TensorInMemory(tuple(shape), dtype, scope, memory))
        return len(self.values) - 1

    def new(self, shape: Sequence[Size], dtype: str, scope: str, constant: int | None = None) -> int:
        """A tensor in memory of its own."""
        size = product([*shape, bytes_of(dtype)])
        image = self._image_of(shape, scope) if scope != GLOBAL and self._image_of is not None else None
        return self.value(shape, dtype, scope, self.allocated(Allocation(size, image, dtype, constant)))

    def constant(self, expr: Any) -> int:
        (shape, dtype), scope, data = kind_of(expr.value), scope_of(expr.ty), data_of(expr.value)
        key = (*shape, dtype, scope, hashlib.blake2b(data).digest())
        if key not in self._constants:
            self.data.append(data)
            self._constants[key] = self.new(shape, dtype, scope, len(self.data) - 1)
        return self._constants[key]


@dataclass(frozen=True)
class _Number:
    """What a kernel is given that is no tensor."""

    size: Size


class _Body:
    """One function: its bindings in order. ``_known``: by variable a value's number, or a list of such."""

    def __init__(self, writer: _Writer, name: str, callers: tuple[str, ...] = ()) -> None:
        self._writer, self._name, self._callers = writer, name, callers
        self._known: dict[Any, Any] = {}
        self._symbols: dict[Any, Size] = {}
        self._launches: list[Launch] = []
        self._kept: set[int] = set()

    def written(self, func: Any) -> HostFunction:
        leaves = [leaf for param in func.params for leaf in _leaves(str(param.name), param.ty)]
        symbols = self._read_symbols([ty for _, ty in leaves])
        inputs = [self._input(name, ty) for name, ty in leaves]
        self._kept = {self._writer.values[number].memory for number in inputs}
        given = iter(inputs)
        for param in func.params:
            self._known[param] = _nested(param.ty, given)
        results = self._results(func)
        names = tuple(name for name, _ in leaves)
        return HostFunction(self._name, tuple(inputs), names, tuple(symbols), tuple(self._launches), results)

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
        return [size_of(extent, self._symbols) for extent in extents]

    def _bound(self, binding: Any) -> Any:
        value = binding.value
        if isinstance(value, tvm.ir.Call):
            return self._called(value, binding.var)
        return self._of(value)

    def _of(self, expr: Any) -> Any:
        if isinstance(expr, relax.Tuple):
            return [self._of(field) for field in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return self._of(expr.tuple_value)[int(expr.index)]
        if isinstance(expr, tvm.ir.GenericConst):
            return self._writer.constant(expr)
        if isinstance(expr, tvm.ir.Var) and expr in self._known:
            return self._known[expr]
        if isinstance(expr, relax.If):
            said = f"the branch by {expr.cond}: its host launches the same kernels every time"
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
        refused = refused_op(self._writer.mod)
        why = f": TVM can't build {refused}" if refused else ""
        raise TargetError(f"{self._name}: {var.name} is {name}, which no kernel does{why}")

    def _inside(self, name: str, call: Any) -> Any:
        """What a function of the module gives here."""
        if name in self._callers:
            raise TargetError(f"{self._name}: {name} calls itself, which programs for devices can't")
        own = _Body(self._writer, name, (*self._callers, name))
        own._launches, own._kept = self._launches, self._kept
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
        self._launches += launches_of(name, host, memories, symbols, self._buffer)
        return results if isinstance(out, relax.TupleType) else results[0]

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
            return _Number(size_of(field, self._symbols))
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
            for extent, size in zip(param.ty.shape, self._writer.values[one].shape, strict=True):
                if isinstance(extent, tvm.ir.Var):
                    found[extent] = size
        last = list(call.args[2].values) if len(call.args) > 2 else []
        for param, size in zip(list(host.params)[len(given) :], last, strict=True):
            found[param] = size_of(size, self._symbols)
        return found

    def _buffer(self, elements: Size, dtype: str, zeros: bool) -> int:
        return self._writer.allocated(Allocation(product([elements, bytes_of(dtype)]), zeros=zeros))


def _leaves(name: str, ty: Any) -> Iterator[tuple[str, Any]]:
    """The tensors of a parameter, by name."""
    if not isinstance(ty, relax.TupleType):
        yield name, ty
        return
    for number, field in enumerate(ty.fields):
        yield from _leaves(f"{name}[{number}]", field)


def _nested(ty: Any, given: Iterator[int]) -> Any:
    return [_nested(field, given) for field in ty.fields] if isinstance(ty, relax.TupleType) else next(given)


def bytes_of(dtype: str) -> int:
    """Of an element in memory; a truth value is a byte."""
    return max(1, int(tvm.DataType(dtype).bits) // 8) * int(tvm.DataType(dtype).lanes)
