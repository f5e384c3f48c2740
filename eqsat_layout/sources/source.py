"""A program in whatever form it is given.

In: a path, a ``ModelProto``, an ``ExportedProgram``, an ``nn.Module`` with example inputs, or an IRModule. Out: a
:class:`~eqsat_layout.sources.program.Source`: the IRModule, and names that its inputs and outputs have for the user.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from eqsat_layout.errors import EqsatError, MalformedModuleError
from eqsat_layout.graph.public_names import is_public
from eqsat_layout.passes.circular_sizes import check_sizes
from eqsat_layout.readers.model import Sizes
from eqsat_layout.readers.modules import read_model
from eqsat_layout.sources.frontends import from_memory
from eqsat_layout.sources.program import Source
from eqsat_layout.sources.shapes import Shapes, checked_shapes, fixed, with_shapes
from eqsat_layout.system.suffixes import check_is_source, path_of


def source_of(given: Any, inputs: Any = None, shapes: Shapes | None = None) -> Source:
    """What ``given`` holds. ``inputs``: tensors, in a tuple or by names in a dictionary, to trace an ``nn.Module``;
    ``shapes``: sizes for the symbolic shapes of inputs.

    Raises :class:`~eqsat_layout.errors.EqsatError` that names the file, or what is given, and what is wrong with it.
    """
    if shapes is not None:
        checked = checked_shapes(shapes)
        return with_shapes(_read(given, inputs, fixed(checked)), checked)
    return _read(given, inputs, None)


def _read(given: Any, inputs: Any, sizes: Sizes | None) -> Source:
    if isinstance(given, tvm.IRModule):
        _no_inputs(given, inputs)
        return _named(given)
    if isinstance(given, str | os.PathLike):
        _no_inputs(given, inputs)
        return _from_file(path_of(given), sizes)
    model = from_memory(given, inputs, sizes)
    if model is None:
        raise MalformedModuleError(
            "expected a tvm.IRModule, a path, an ONNX ModelProto, a torch ExportedProgram or an nn.Module, "
            f"got {type(given).__name__}"
        )
    return _named(model.module, model.inputs, model.outputs)


def entry_of(mod: tvm.IRModule) -> str:
    """``main``, else the only Relax function that is public."""
    names = [
        str(var.name_hint)
        for var, function in mod.functions_items()
        if isinstance(function, relax.Function) and is_public(function)
    ]
    if "main" in names or len(names) == 1:
        return "main" if "main" in names else names[0]
    raise MalformedModuleError(f"which function is the model? None is called main, public are: {', '.join(names)}")


def _from_file(path: Path, sizes: Sizes | None) -> Source:
    check_is_source(path)
    model = read_model(path, sizes)
    return _named(model.module, model.inputs, model.outputs)


def _named(mod: tvm.IRModule, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> Source:
    """The model's own names, where it has one for every parameter; else those of the parameters."""
    check_sizes(mod)
    entry = entry_of(mod)
    params = [str(param.name) for param in mod[entry].params]
    own = inputs if len(inputs) == len(params) else params
    return Source(mod, entry, tuple(_distinct(own)), outputs)


def _distinct(names: Any) -> list[str]:
    """Names of Relax variables may be equal: the second ``x`` is ``x_1``."""
    found: dict[str, None] = {}
    for name in names:
        number, own = 0, name
        while own in found:
            number, own = number + 1, f"{name}_{number + 1}"
        found[own] = None
    return list(found)


def _no_inputs(given: Any, inputs: Any) -> None:
    if inputs is not None:
        what = given if isinstance(given, str | os.PathLike) else type(given).__name__
        raise EqsatError(f"inputs= are what an nn.Module is traced with; {what} needs none")
