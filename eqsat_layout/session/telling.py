"""A program's interface, said beside its code, so that a library in a file tells it too.

In: a source. Out: an :class:`Interface`, and the source's module with a function that returns it as bytes of JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tvm
from tvm import relax

from eqsat_layout.errors import MalformedModuleError
from eqsat_layout.session.interface import TELLS, Interface, TensorSpec
from eqsat_layout.sources.shapes import written
from eqsat_layout.sources.source import Source
from eqsat_layout.tir.structural import nodes_of


def interface_of(source: Source, *, any_address: bool) -> Interface:
    """Of functions from tensors to tensors, also in tuples; :class:`MalformedModuleError` for others.

    ``any_address``: tensors of the program that is built may begin anywhere.
    """
    inputs = [
        _spec(name, param.ty, f"input {name!r}")
        for name, param in zip(source.inputs, source.function.params, strict=True)
    ]
    results = list(_leaves(source.function.ret_ty))
    names = source.outputs if len(source.outputs) == len(results) else [f"output{i}" for i in range(len(results))]
    outputs = [_spec(name, ty, f"output {name!r}") for name, ty in zip(names, results, strict=True)]
    return Interface(source.entry, tuple(inputs), tuple(outputs), _branches(source.module), any_address)


def telling(source: Source, interface: Interface) -> tvm.IRModule:
    """The module with the function :data:`TELLS`."""
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
    return TensorSpec(name, None if extents is None else tuple(map(written, extents)), str(ty.dtype))


def _leaves(ty: Any) -> Iterator[Any]:
    if isinstance(ty, relax.TupleType):
        for field in ty.fields:
            yield from _leaves(field)
    else:
        yield ty


def _branches(mod: tvm.IRModule) -> bool:
    functions = (function for function in mod.functions.values() if isinstance(function, relax.Function))
    return any(nodes_of(function, relax.If) for function in functions)
