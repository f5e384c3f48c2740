"""Relax types as the types of a graph's tensors.

In: a Relax type, and the memories of a target. Out: a :class:`TensorType`, or why a size is not understood.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tvm_ffi
from tvm import ir, relax, tirx

from eqsat_layout.errors import LayoutError
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.vdevices import scope_of
from eqsat_layout.maps import Memory
from eqsat_layout.tir.extents import extent_of


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
        variables = variables_in(expr)
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


def variables_in(expr: Any) -> list[Any]:
    """All variables in an expression, one as often as it occurs."""
    if isinstance(expr, ir.Var):
        return [expr]
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, (ir.Var, found.append))
    return found
