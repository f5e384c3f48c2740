"""A program's interface, said beside its code, so that a library in a file tells it too.

In: a source. Out: an :class:`Interface`, and the source's module with a function that returns it as bytes of JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax, tirx

from eqsat_layout.errors import MalformedModuleError
from eqsat_layout.session.extents import Extent, Tree
from eqsat_layout.session.interface import TELLS, Interface, TensorSpec
from eqsat_layout.sources.program import Source
from eqsat_layout.sources.ranges import ranges_of
from eqsat_layout.sources.shapes import extent_text
from eqsat_layout.tir.structural import nodes_of


def interface_of(source: Source, *, any_address: bool, needs: tuple[str, ...]) -> Interface:
    """The interface of a function from tensors to tensors, also in tuples; :class:`MalformedModuleError` for others.

    ``any_address``: tensors of the program that is built may begin anywhere. ``needs``: what its processor must have.
    """
    inputs = [
        _spec(name, param.ty, f"input {name!r}")
        for name, param in zip(source.inputs, source.function.params, strict=True)
    ]
    results = list(_leaves(source.function.ret_ty))
    names = source.outputs if len(source.outputs) == len(results) else [f"output{i}" for i in range(len(results))]
    outputs = [_spec(name, ty, f"output {name!r}") for name, ty in zip(names, results, strict=True)]
    branches, extents = _branches(source.module), _extents(source.module)
    specs, ranges = (tuple(inputs), tuple(outputs)), ranges_of(source.function)
    return Interface(source.entry, *specs, branches, any_address, extents, needs, ranges)


def with_interface(source: Source, interface: Interface) -> tvm.IRModule:
    """The source's module, with the function :data:`TELLS` that returns ``interface``."""
    if any(str(var.name_hint) == TELLS for var in source.module.functions):
        raise MalformedModuleError(f"the module has a function {TELLS} already: that name is the session's")
    data = relax.const(np.frombuffer(interface.to_json().encode(), "uint8"))
    function = relax.Function([], relax.SeqExpr([], data), data.ty).with_attr("global_symbol", TELLS)
    told = source.module.clone()
    told[TELLS] = function
    return told


def _spec(name: str, ty: Any, where: str) -> TensorSpec:
    if not isinstance(ty, relax.TensorType) or ty.dtype is None:
        raise MalformedModuleError(f"a session runs functions of tensors: {where} is {ty}")
    extents = getattr(ty.shape, "values", None)
    if extents is None and ty.ndim >= 0:
        return TensorSpec(name, (None,) * ty.ndim, str(ty.dtype))
    return TensorSpec(name, None if extents is None else tuple(map(extent_text, extents)), str(ty.dtype))


def _leaves(ty: Any) -> Iterator[Any]:
    if isinstance(ty, relax.TupleType):
        for field in ty.fields:
            yield from _leaves(field)
    else:
        yield ty


_NAMES: Final = {
    tirx.Add: "+",
    tirx.Sub: "-",
    tirx.Mul: "*",
    tirx.FloorDiv: "//",
    tirx.FloorMod: "%",
    tirx.Min: "min",
    tirx.Max: "max",
}
"""By which :data:`~eqsat_layout.session.extents.OPERATIONS` go."""


def _extents(mod: tvm.IRModule) -> tuple[Extent, ...]:
    """Those of what the program computes, that may be below zero."""
    found: dict[str, Extent] = {}
    for function in mod.functions.values():
        blocks = function.body.blocks if isinstance(function, relax.Function) else ()
        types = [ty for block in blocks for binding in block.bindings for ty in _leaves(binding.var.ty)]
        shapes = [ty.shape.values for ty in types if isinstance(getattr(ty, "shape", None), relax.ShapeExpr)]
        for extent in dict.fromkeys(one for shape in shapes for one in shape if not isinstance(one, tirx.IntImm)):
            if (tree := _tree(extent)) is not None and _may_be_negative(extent):
                text = str(extent_text(extent))
                found.setdefault(text, Extent(text, tree))
    return tuple(found.values())


def _tree(extent: Any) -> Tree | None:
    if isinstance(extent, tirx.IntImm):
        return int(extent)
    if isinstance(extent, tvm.ir.Var):
        return str(extent.name)
    if type(extent) not in _NAMES:
        return None
    parts = [_tree(extent.a), _tree(extent.b)]
    return None if None in parts else [_NAMES[type(extent)], *parts]


def _may_be_negative(extent: Any) -> bool:
    analyzer = tvm.sym.Analyzer()
    for var in nodes_of(extent, tvm.ir.Var):
        analyzer.bind(var, tvm.ir.Range(tirx.IntImm("int64", 0), tirx.IntImm("int64", 1 << 31)))
    return int(analyzer.const_int_bound(extent).min_value) < 0


def _branches(mod: tvm.IRModule) -> bool:
    functions = (function for function in mod.functions.values() if isinstance(function, relax.Function))
    return any(nodes_of(function, relax.If) for function in functions)
