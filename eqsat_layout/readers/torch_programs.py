"""Exported programs of torch through TVM's frontend.

In: an archive of ``torch.export``, or an ``ExportedProgram``. Out: the program of the checked archive; a :class:`Model`
whose variables are called after the modules that their nodes were written in.
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import Any

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.archives import checked_archive
from eqsat_layout.readers.model import Model
from eqsat_layout.readers.naming import with_names
from eqsat_layout.readers.torch_importer import importer


def program_in(path: Path) -> Any:
    """The ``ExportedProgram`` in the archive at ``path``, of which torch reads a copy that was checked.

    Raises :class:`~eqsat_layout.readers.archives.UnsafeArchiveError` for one that would run code.
    """
    export = importlib.import_module("torch.export")
    with tempfile.TemporaryDirectory(prefix="eqsat_layout_") as folder:
        copy = Path(folder) / "program.pt2"
        checked_archive(path, copy)
        return export.load(copy)


def from_program(program: Any) -> Model:
    """Raises whatever the frontend raises."""
    torch = importlib.import_module("torch")
    inputs = tuple(map(str, program.graph_signature.user_inputs))
    if all(tensor.layout == torch.strided for tensor in program.state_dict.values()):
        program = program.run_decompositions()
        _say_types(program)
    reader = importer()
    module = reader.from_exported_program(program, False, False, False, None)
    _check_shapes(reader.env)
    names = {made: name for node, made in reader.env.items() if (name := _name(node)) and _is_var(made)}
    return Model(with_names(module, names), inputs)


def _say_types(program: Any) -> None:
    """Results whose type torch works out are given it by name: the frontend takes the sums of booleans for booleans."""
    for node in program.graph.nodes:
        names = [argument.name for argument in getattr(getattr(node.target, "_schema", None), "arguments", ())]
        given = [getattr(value, "meta", {}).get("val") for value in (node, *node.args[:1])]
        types = [getattr(value, "dtype", None) for value in given]
        is_open = "dtype" in names[len(node.args) :] and node.kwargs.get("dtype") is None
        if is_open and None not in types and len(set(types)) > 1:
            node.kwargs = {**node.kwargs, "dtype": types[0]}


def _check_shapes(made: Any) -> None:
    """:class:`EqsatError` where what was made of a node has another shape than torch says."""
    from tvm import relax, tirx

    for node, one in made.items():
        shape = getattr(node.meta.get("val"), "shape", None)
        if shape is None or not isinstance(one, relax.Expr) or not isinstance(one.ty, relax.TensorType):
            continue
        own = list(one.ty.shape.values) if isinstance(one.ty.shape, relax.ShapeExpr) else list(shape)
        both = [(a, b) for a, b in zip(own, shape, strict=False) if isinstance(a, tirx.IntImm) and isinstance(b, int)]
        if len(own) != len(shape) or any(int(a) != b for a, b in both):
            raise EqsatError(
                f"node {node.name} ({node.target}): torch makes {tuple(shape)} of it, TVM's frontend {one.ty}"
            )


def _is_var(made: Any) -> bool:
    """Of a tensor: extents are variables too, and called as they are."""
    from tvm import relax

    return isinstance(made, relax.Var) and isinstance(made.ty, relax.TensorType)


def _name(node: Any) -> str | None:
    """``layer1.0.conv1`` for what torch's own module of that path does, ``layer1.0.add`` for what the user's does."""
    if node.op != "call_function":
        return None
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    own = str(node.name)
    if not path:
        return own
    kind = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    op = own.rstrip("0123456789").rstrip("_")
    return str(path) if kind.startswith("torch.nn.modules.") else f"{path}.{op}"
