"""Models that lie in memory as onnx's or torch's own objects.

In: such an object. Out: an IRModule through TVM's frontends, with the names of the model; ``None`` for what is neither.
An object of a package can only be given where that is imported already: nothing is imported to find out.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, cast

from eqsat_layout.errors import EqsatError
from eqsat_layout.notes import said_by
from eqsat_layout.readers.model import Model, Sizes
from eqsat_layout.readers.onnx.models import from_proto
from eqsat_layout.readers.torch.exporting import exported
from eqsat_layout.readers.torch.programs import from_program


def from_memory(given: Any, inputs: Any, sizes: Sizes | None = None) -> Model | None:
    """``inputs`` are for an ``nn.Module`` only, ``sizes`` for the symbols of an ONNX graph."""
    onnx, torch = sys.modules.get("onnx"), sys.modules.get("torch")
    if onnx is not None and isinstance(given, onnx.ModelProto):
        _expect(inputs is None, "inputs= are what an nn.Module is traced with; a ModelProto needs none")
        return _from_onnx(given, sizes)
    if torch is None:
        return None
    if isinstance(given, torch.nn.Module):
        return _from_program(exported(given, inputs))
    export = importlib.import_module("torch.export")
    if isinstance(given, export.ExportedProgram):
        _expect(inputs is None, "inputs= are what an nn.Module is traced with; an ExportedProgram needs none")
        return _from_program(given)
    return None


def _from_onnx(model: Any, sizes: Sizes | None) -> Model:
    return cast(Model, _through("the ONNX model", lambda: from_proto(model, sizes)))


def _from_program(program: Any) -> Model:
    return cast(Model, _through("the exported program", lambda: from_program(program)))


def _through(what: str, work: Callable[[], Any]) -> Any:
    """The frontends raise whatever they meet: it is said whose fault it is, and theirs stays the cause."""
    try:
        return work()
    except Exception as error:
        raise EqsatError(f"{what}: {said_by(error)}") from error


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise EqsatError(message)
