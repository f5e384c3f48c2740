"""ONNX models through TVM's frontend.

In: a file, or a ``ModelProto``, and sizes for symbolic inputs. Out: a :class:`Model` whose variables are called as the
nodes of the graph are.
"""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from typing import Any

from eqsat_layout.graph.unfinished import blocks_ended
from eqsat_layout.readers.model import Model, Sizes
from eqsat_layout.readers.naming import with_names
from eqsat_layout.readers.onnx.definitions import check_nodes
from eqsat_layout.readers.onnx.external_data import check_is_complete, read_external_tensors
from eqsat_layout.readers.onnx.folding import folded, with_functions_inlined
from eqsat_layout.readers.onnx.graphs import (
    OnnxNodeError,
    all_nodes,
    bytes_given,
    check_domains,
    check_ports,
    in_topological_order,
    opset_of,
)
from eqsat_layout.readers.onnx.loops import without_loops
from eqsat_layout.readers.onnx.messages import with_texts
from eqsat_layout.readers.onnx.size_names import with_plain_size_names
from eqsat_layout.readers.onnx.versions import of_a_known_version, with_whole_bytes
from eqsat_layout.readers.quiet import talk_to_log

_logger = logging.getLogger("eqsat_layout")


def loaded_model(path: Path) -> Any:
    """The ``ModelProto`` with its weights, those in files beside it, too."""
    onnx = importlib.import_module("onnx")
    try:
        model = onnx.load(path, load_external_data=False)
    except importlib.import_module("google.protobuf.message").DecodeError as error:
        raise ValueError(f"is no ONNX model: {error}") from error
    read_external_tensors(model, path)
    return model


def from_proto(given: Any, sizes: Sizes | None = None) -> Model:
    """``given`` is not changed. Raises whatever the frontend raises, of one node :class:`EqsatError` that names it."""
    given = with_texts(given)
    check_is_complete(given)
    given = with_functions_inlined(in_topological_order(of_a_known_version(given)))
    check_ports(given.graph)
    check_nodes(given)
    return _from_checked(given, sizes, frozenset())


def _from_checked(given: Any, sizes: Sizes | None, written_out: frozenset[str]) -> Model:
    """``written_out``: ops that ONNX writes in other ops, and that are tried so because they can't be taken as one."""
    functions = importlib.import_module("eqsat_layout.readers.onnx.function_ops")
    try:
        return _converted(given, functions.with_functions_written_out(given, written_out), sizes)
    except OnnxNodeError as error:
        if error.op in written_out or not functions.has_function(error.op, opset_of(given)):
            raise
        _logger.debug("ONNX's own definition of %s is tried: %s", error.op, error)
        try:
            return _from_checked(given, sizes, written_out | {error.op})
        except OnnxNodeError as later:
            if all(node.op_type != later.op for node in all_nodes(given.graph)):  # of the definition, not of the user's
                raise error from later
            raise


def _converted(given: Any, written: Any, sizes: Sizes | None) -> Model:
    """``written``: what ``given`` is in ops that may have converters."""
    with talk_to_log():
        model = folded(with_whole_bytes(written), sizes)
        flat = without_loops(model)
        if flat is not model:
            model = folded(flat, sizes)
        check_domains(model.graph)
        model = with_plain_size_names(model)
        reader = importlib.import_module("eqsat_layout.readers.onnx.importer")
        importer = reader.Importer(opset_of(model), bytes_given(model))
        with blocks_ended(lambda: importer.bb):
            module = importer.from_onnx(model.graph, opset_of(model))
        importer.check_types(model)
    weights = {str(tensor.name) for tensor in given.graph.initializer}
    inputs = tuple(str(value.name) for value in given.graph.input if value.name not in weights)
    return Model(
        with_names(module, importer.original_names), inputs, tuple(str(value.name) for value in given.graph.output)
    )
