"""Models that lie in memory as onnx's or torch's own objects.

In: such an object. Out: an IRModule through TVM's frontends, with the names of the model; ``None`` for what is neither.
An object of a package can only be given where that is imported already: nothing is imported to find out.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm

from eqsat_layout.errors import EqsatError


@dataclass(frozen=True)
class Model:
    """A module with the names that its inputs and outputs had, as far as they had any."""

    module: tvm.IRModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def from_memory(given: Any, inputs: Any) -> Model | None:
    """``inputs`` are for an ``nn.Module`` only."""
    onnx, torch = sys.modules.get("onnx"), sys.modules.get("torch")
    if onnx is not None and isinstance(given, onnx.ModelProto):
        _expect(inputs is None, "inputs= are what an nn.Module is traced with; a ModelProto needs none")
        return _from_onnx(given)
    if torch is None:
        return None
    if isinstance(given, torch.nn.Module):
        return _from_program(_exported(torch, given, inputs))
    export = importlib.import_module("torch.export")
    if isinstance(given, export.ExportedProgram):
        _expect(inputs is None, "inputs= are what an nn.Module is traced with; an ExportedProgram needs none")
        return _from_program(given)
    return None


def names_in_onnx_file(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those of inputs and outputs; its weights are not read where they lie in files of their own."""
    onnx = importlib.import_module("onnx")
    return _onnx_names(onnx.load(path, load_external_data=False).graph)


def _from_onnx(model: Any) -> Model:
    from tvm.relax.frontend.onnx import from_onnx

    module = _through("the ONNX model", lambda: from_onnx(model, keep_params_in_input=False))
    return Model(module, *_onnx_names(model.graph))


def _onnx_names(graph: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    weights = {str(tensor.name) for tensor in graph.initializer}
    inputs = tuple(str(value.name) for value in graph.input if value.name not in weights)
    return inputs, tuple(str(value.name) for value in graph.output)


def _exported(torch: Any, model: Any, inputs: Any) -> Any:
    _expect(inputs is not None, f"{type(model).__name__} is an nn.Module: give example inputs, inputs=(tensor, ...)")
    _expect(not model.training, f"{type(model).__name__} is in training mode: call its .eval() first")
    named = dict(inputs) if isinstance(inputs, Mapping) else {}
    given = () if named else inputs if isinstance(inputs, tuple) else (inputs,)
    with torch.no_grad():
        return _through(
            f"{type(model).__name__} can't be exported",
            lambda: importlib.import_module("torch.export").export(model, given, named),
        )


def _from_program(program: Any) -> Model:
    from tvm.relax.frontend.torch import from_exported_program

    module = _through("the exported program", lambda: from_exported_program(program, keep_params_as_input=False))
    return Model(module, tuple(map(str, program.graph_signature.user_inputs)), ())


def _through(what: str, work: Callable[[], Any]) -> Any:
    """The frontends raise whatever they meet: it is said whose fault it is, and theirs stays the cause."""
    try:
        return work()
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise EqsatError(f"{what}: {lines[0] if lines else type(error).__name__}") from error


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise EqsatError(message)
