"""Relax types as the types of a graph's tensors.

In: a Relax type, and the memories of a target. Out: a :class:`TensorType`, or why a size is not understood.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tvm_ffi
from tvm import ir, relax, tirx

from eqsat_layout.errors import LayoutError
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.vdevices import scope_of, without_device
from eqsat_layout.maps import GLOBAL, Memory
from eqsat_layout.tir.extents import extent_of
from eqsat_layout.tir.structural import nodes_of
from eqsat_layout.tir.symbol_names import symbol_name


def has_several_devices(mod: Any) -> bool:
    """Tensors of the module lie on more than one device, not only in several memories of one; more may be declared."""
    if len(mod.global_infos.get("vdevice", [])) < 2:
        return False
    devices = set()
    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            found = (v for ty in _types_in(function) for v in nodes_of(ty, relax.VDevice))
            devices |= {(str(v.target), int(v.vdevice_id)) for v in found}
    return len(devices) > 1


def _types_in(function: Any) -> Iterator[Any]:
    """Those of all its values, each as often as it is met."""
    for expr in nodes_of(function, ir.Expr):
        if not isinstance(expr, ir.Op) and expr.ty is not None:
            yield expr.ty


class TensorTypes:
    """Reads Relax types. ``symbols`` collects the symbolic variables met, by name; ``memories`` are known by scope.

    ``refused`` collects of which tensors types are not understood, and why, in words.
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
        if not self._memories:  # of several devices, or nobody asked
            return None
        if why := _why_not_held(plain, scope, self._memories):
            self.refused[f"{_said(plain, scope)} stay as they are: {why}"] = None
            return None
        fmt = self._memories[scope].grouped(plain.row_major)
        return None if fmt is None else TensorType(plain.shape, plain.dtype, scope, fmt.separators)

    def _symbolic(self, expr: Any) -> Any:
        """Text of a symbolic extent; None where its name already means another variable, or it is no arithmetic."""
        variables = variables_in(expr)
        for var in variables:
            if not self.symbols.setdefault(symbol_name(var), var).same_as(var):
                return None
        try:
            extent = extent_of(expr)
        except LayoutError as error:
            self.refused[f"a tensor of such a size stay as they are: {error}"] = None
            return None
        if isinstance(extent, str):
            self._variables[extent] = tuple(map(symbol_name, variables))
        return extent


def tensors_not_held(mod: Any, memories: Mapping[str, Memory]) -> Iterator[str]:
    """In words, each tensor whose type names a memory that does not hold it, and why."""
    types = TensorTypes()
    for global_var, function in mod.functions_items():
        if not isinstance(function, relax.Function):
            continue
        variables = (*function.params, *(binding.var for binding in nodes_of(function, relax.VarBinding)))
        named = [(var.name, var.ty) for var in variables]
        for name, of_it in (*named, *(("a constant", one.ty) for one in nodes_of(function, ir.GenericConst))):
            for ty in _placed_in(of_it):
                plain, scope = types.read(without_device(ty)), scope_of(ty)
                why = None if plain is None else _why_not_held(plain, scope, memories)
                if plain is not None and why is not None:
                    yield f"{global_var.name_hint}: {name} is {_said(plain, scope)}, which does not hold it: {why}"


def _placed_in(ty: Any) -> Iterator[Any]:
    """The types of tensors that are not in ordinary memory."""
    if isinstance(ty, relax.TupleType):
        for field in ty.fields:
            yield from _placed_in(field)
    elif scope_of(ty) != GLOBAL:
        yield ty


def _said(plain: TensorType, scope: str) -> str:
    return f"a tensor of {plain.dtype} {list(plain.shape)} in {scope}"


def _why_not_held(plain: TensorType, scope: str, memories: Mapping[str, Memory]) -> str | None:
    memory = memories.get(scope)
    if memory is None:
        return f"the target's memories are {', '.join(memories)}"
    row_major = plain.row_major
    return memory.why_not(memory.grouped(row_major) or row_major, plain.dtype)


def variables_in(expr: Any) -> list[Any]:
    """All variables in an expression, one as often as it occurs."""
    if isinstance(expr, ir.Var):
        return [expr]
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, (ir.Var, found.append))
    return found
