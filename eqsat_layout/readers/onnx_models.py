"""ONNX models through TVM's frontend.

In: a file, or a ``ModelProto``, and sizes for symbolic inputs. Out: a :class:`Model` whose variables are called as the
nodes of the graph are.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import tvm

from eqsat_layout.readers import onnx_recurrent
from eqsat_layout.readers.external_data import check_locations
from eqsat_layout.readers.model import Model, Sizes
from eqsat_layout.readers.naming import with_names
from eqsat_layout.readers.onnx_folding import folded

_logger = logging.getLogger("eqsat_layout")


def loaded(path: Path) -> Any:
    """The ``ModelProto`` with its weights, those in files beside it, too."""
    onnx = importlib.import_module("onnx")
    model = onnx.load(path, load_external_data=False)
    check_locations(model, path.absolute().parent)
    onnx.external_data_helper.load_external_data_for_model(model, str(path.absolute().parent))
    return model


def from_proto(given: Any, sizes: Sizes | None = None) -> Model:
    """``given`` is not changed. Raises whatever the frontend raises."""
    model = folded(given, sizes)
    importer = _importer()
    with _talk_to_log():
        module = importer.from_onnx(model.graph, _opset(model))
    weights = {str(tensor.name) for tensor in given.graph.initializer}
    inputs = tuple(str(value.name) for value in given.graph.input if value.name not in weights)
    return Model(
        with_names(module, importer.original_names), inputs, tuple(str(value.name) for value in given.graph.output)
    )


def _opset(model: Any) -> int:
    own = [int(one.version) for one in model.opset_import if one.domain in ("", "ai.onnx")]
    return own[0] if own else 1


def _importer() -> Any:
    """TVM's importer, that keeps the names of nodes. Its module takes long to import."""
    from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

    class Importer(ONNXGraphImporter):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__({}, "float32", keep_params_in_input=False, sanitize=True)
            self.original_names: dict[Any, str] = {}
            self._given: set[Any] = set()
            self._is_inside = False

        def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
            """Tensors of numbers are bound to variables at once; those of integers may be shapes, which the converters
            of other nodes look into."""
            positions = _counted(inputs) if op_name == "Range" else None
            if positions is not None:
                return self.bb.normalize(positions)
            if op_name == "Constant":
                attrs = _with_tensor(attrs)
            if op_name in onnx_recurrent.KINDS:
                return onnx_recurrent.converted(self.bb, op_name, inputs, attrs)
            made = super()._convert_operator(op_name, inputs, attrs, opset)
            name = attrs["tvm_custom"]["name"]
            if not name or self._is_inside or not _is_of_numbers(made):
                return made
            if isinstance(made, tvm.ir.Call):
                made = self.bb.emit(made)
            if isinstance(made, tvm.relax.Var) and made not in self._given:
                self.original_names.setdefault(made, name)
            return made

        def _check_for_unsupported_ops(self, graph: Any) -> None:
            nodes = [node for node in graph.node if node.op_type not in onnx_recurrent.KINDS]
            super()._check_for_unsupported_ops(SimpleNamespace(node=nodes))

        def _parse_graph_input(self, graph: Any) -> None:
            super()._parse_graph_input(graph)
            self._given = set(self._inputs.values())

        def _convert_subgraph(self, bb: Any, graph: Any) -> Any:
            outside, self._is_inside = self._is_inside, True
            try:
                return super()._convert_subgraph(bb, graph)
            finally:
                self._is_inside = outside

    return Importer()


_NUMBERS: Final = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}


def _with_tensor(attributes: dict[str, Any]) -> dict[str, Any]:
    """Of a ``Constant``: numbers that are attributes of their own as the tensor that they stand for."""
    helper = importlib.import_module("onnx.numpy_helper")
    numbers = [np.asarray(attributes[name], kind) for name, kind in _NUMBERS.items() if name in attributes]
    return attributes | {"value": helper.from_array(numbers[0])} if numbers else attributes


def _counted(inputs: Any) -> Any:
    """``Range(0, n, 1)`` for a size ``n`` of the model: TVM's converter makes a new size of it, and what is added to
    it has no known shape. None for others."""
    start, limit, step = inputs
    ends = [x.value.numpy() for x in (start, step) if isinstance(x, tvm.ir.GenericConst)]
    counts = len(ends) == 2 and all(end.size == 1 and end.dtype == "int64" for end in ends)
    if not counts or not isinstance(limit, tvm.ir.Var) or str(limit.ty) != "int64":
        return None
    return tvm.relax.op.arange(0, limit, 1, "int64") if [int(end.item()) for end in ends] == [0, 1] else None


def _is_of_numbers(made: Any) -> bool:
    ty = made.ty if isinstance(made, tvm.ir.Expr) else None
    return isinstance(ty, tvm.relax.TensorType) and str(ty.dtype).startswith(("float", "bfloat"))


@contextlib.contextmanager
def _talk_to_log() -> Iterator[None]:
    """What a frontend prints and warns of goes to the log: its errors say it again."""
    said = io.StringIO()
    with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(said):
        warnings.simplefilter("always")
        yield
    for text in (*said.getvalue().splitlines(), *(str(warning.message) for warning in warned)):
        _logger.debug("%s", text)
