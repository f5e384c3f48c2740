"""What a compiled program takes and gives, said beside its code, so that a library in a file tells it too.

In: a source. Out: an :class:`Interface`, and the source's module with a function that returns it as bytes of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import tvm
from tvm import relax

from eqsat_layout.errors import MalformedModuleError
from eqsat_layout.sources.shapes import written
from eqsat_layout.tir.structural import nodes_of

if TYPE_CHECKING:
    from eqsat_layout.sources.source import Source

TELLS: Final = "eqsat_layout_interface"
"""The function of a program that returns its interface."""


Shape = tuple[int | str | None, ...]


@dataclass(frozen=True)
class TensorSpec:
    """An input or output. ``shape``: numbers, names or expressions of what is known at run time only, and None for
    what nothing is known of; None where not even the rank is known."""

    name: str
    shape: Shape | None
    dtype: str

    def __str__(self) -> str:
        return described(self.shape, self.dtype)


def described(shape: Shape | None, dtype: str) -> str:
    """``float32 (1, 3, n, n)``."""
    if shape is None:
        return f"{dtype} of any shape"
    extents = ", ".join("?" if extent is None else str(extent) for extent in shape)
    return f"{dtype} ({extents}{',' if len(shape) == 1 else ''})"


@dataclass(frozen=True)
class Interface:
    """``entry`` is the function that runs. ``branches``: what it does may depend on values, not on shapes alone."""

    entry: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    branches: bool

    def to_json(self) -> str:
        """What :meth:`from_json` reads."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Interface:
        """Raises ``ValueError``, ``KeyError`` or ``TypeError`` for anything else."""
        read = json.loads(text)
        return Interface(str(read["entry"]), _specs(read["inputs"]), _specs(read["outputs"]), bool(read["branches"]))


def interface_of(source: Source) -> Interface:
    """Of functions from tensors to tensors, also in tuples; :class:`MalformedModuleError` for others."""
    inputs = [
        _spec(name, param.ty, f"input {name!r}")
        for name, param in zip(source.inputs, source.function.params, strict=True)
    ]
    results = list(_leaves(source.function.ret_ty))
    names = source.outputs if len(source.outputs) == len(results) else [f"output{i}" for i in range(len(results))]
    outputs = [_spec(name, ty, f"output {name!r}") for name, ty in zip(names, results, strict=True)]
    return Interface(source.entry, tuple(inputs), tuple(outputs), _branches(source.module))


def telling(source: Source, interface: Interface) -> tvm.IRModule:
    """The module with the function :data:`TELLS`."""
    if any(str(var.name_hint) == TELLS for var in source.module.functions):
        raise MalformedModuleError(f"the module has a function {TELLS} already: that name is the session's")
    data = relax.const(np.frombuffer(interface.to_json().encode(), "uint8"))
    function = relax.Function([], relax.SeqExpr([], data), data.ty).with_attr("global_symbol", TELLS)
    told = source.module.clone()
    told[TELLS] = function
    return told


def _specs(read: Any) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(str(s["name"]), None if s["shape"] is None else tuple(s["shape"]), str(s["dtype"])) for s in read
    )


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
