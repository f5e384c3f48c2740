"""What is built together and looked up together: a kernel, or PrimFuncs that call one another.

In: a module of kernels. Out: the module with kernels called by their structure, and its units.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm_ffi.serialization import from_json_graph_str, to_json_graph_str

from eqsat_layout.graph.public_names import is_public
from eqsat_layout.graph.renaming import renamed
from eqsat_layout.tir.structural import nodes_of

_LONGEST: Final = 60
"""Characters of a kernel's name, before those of its hash."""


@dataclass(frozen=True)
class Unit:
    """PrimFuncs by the symbols that they will have."""

    symbols: tuple[str, ...]
    functions: tuple[Any, ...]

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The functions as JSON."""
        return tuple(map(to_json_graph_str, self.functions))

    @property
    def size(self) -> int:
        """The length of the text, which the time to build it grows with."""
        return sum(map(len, self.texts))

    @cached_property
    def digest(self) -> str:
        """A digest of the functions, the names of their variables included."""
        found = hashlib.sha256()
        for text in self.texts:
            found.update(hashlib.sha256(text.encode()).digest())
        return found.hexdigest()

    @cached_property
    def structure(self) -> str:
        """The hashes of the functions, which names are no part of."""
        return " ".join(f"{tvm_ffi.structural_hash(func) & (1 << 64) - 1:016x}" for func in self.functions)

    def is_same(self, texts: Sequence[str]) -> bool:
        """Whether these are functions that differ in names only."""
        others = list(map(from_json_graph_str, texts))
        return len(others) == len(self.functions) and all(map(tvm_ffi.structural_equal, others, self.functions))


def named_by_structure(mod: tvm.IRModule) -> tuple[tvm.IRModule, list[Unit]]:
    """``mod`` with kernels called by what they are, so that one is the same in every program; and its units.

    Functions that the outside knows by name, or that call one another, keep their names.
    """
    functions = {var: func for var, func in mod.functions_items() if isinstance(func, tirx.PrimFunc)}
    builder = relax.BlockBuilder()
    names: dict[Any, Any] = {}
    units: list[Unit] = []
    for group in _groups(functions):
        unit = _unit(group, functions)
        if len(group) > 1 or is_public(unit.functions[0]):
            units.append(unit)
            continue
        var = builder.add_func(unit.functions[0], unit.symbols[0])  # one name for equal functions
        if var not in names.values():
            units.append(Unit((str(var.name_hint),), unit.functions))
        names[group[0]] = var
    result = {names.get(var, var): func for var, func in functions.items()}
    for var, func in mod.functions_items():
        if var not in functions:
            result[var] = renamed(func, names) if isinstance(func, relax.Function) else func
    return tvm.IRModule(result, attrs=mod.attrs, global_infos=mod.global_infos), units


def units_by_function(mod: tvm.IRModule) -> dict[Any, Unit]:
    """For each PrimFunc that is a unit by itself, the unit as :func:`named_by_structure` will name it."""
    functions = {var: func for var, func in mod.functions_items() if isinstance(func, tirx.PrimFunc)}
    return {group[0]: _unit(group, functions) for group in _groups(functions) if len(group) == 1}


def other_units(mod: tvm.IRModule, units: Sequence[Unit]) -> list[Unit]:
    """The PrimFuncs of a lowered module that are none of ``units``: those that lowering made."""
    known = {symbol for unit in units for symbol in unit.symbols}
    rest = {
        var: func
        for var, func in mod.functions_items()
        if isinstance(func, tirx.PrimFunc) and str(var.name_hint) not in known
    }
    groups = _groups(rest)
    return [Unit(tuple(str(v.name_hint) for v in own), tuple(rest[v] for v in own)) for own in groups]


def _unit(group: Sequence[Any], functions: Mapping[Any, Any]) -> Unit:
    """Those that call one another, or that the outside knows, by their names; another one by its structure."""
    own = tuple(functions[var] for var in group)
    names = tuple(str(var.name_hint) for var in group)
    if len(group) == 1 and not is_public(own[0]):
        stem = re.sub(r"\d+", "", names[0]).strip("_")[:_LONGEST]
        names = (f"{stem}_{Unit((), own).structure}",)
    return Unit(names, own)


def _groups(functions: Mapping[Any, Any]) -> Iterator[list[Any]]:
    """The functions in order, those together that call one another."""
    leader = {var: var for var in functions}

    def find(var: Any) -> Any:
        while leader[var] is not var:
            var = leader[var]
        return var

    for var, func in functions.items():
        for called in nodes_of(func.body, tvm.ir.GlobalVar):
            if called in leader:
                leader[find(called)] = find(var)
    groups: dict[Any, list[Any]] = {}
    for var in functions:
        groups.setdefault(find(var), []).append(var)
    yield from groups.values()
