"""Exported programs of torch through TVM's frontend.

In: an archive of ``torch.export``, or an ``ExportedProgram``. Out: the program of the checked archive; a :class:`Model`
whose variables are called after the modules that their nodes were written in.
"""

from __future__ import annotations

import importlib
import logging
import tempfile
from pathlib import Path
from typing import Any

from eqsat_layout.errors import EqsatError
from eqsat_layout.graph.unfinished import blocks_ended
from eqsat_layout.readers.model import Model
from eqsat_layout.readers.naming import with_names
from eqsat_layout.readers.quiet import talk_to_log
from eqsat_layout.readers.torch.archives import checked_archive
from eqsat_layout.readers.torch.arguments import tensors_taken, with_tensors_only
from eqsat_layout.readers.torch.assumptions import assumptions
from eqsat_layout.readers.torch.decompositions import all_decompositions, decompositions
from eqsat_layout.readers.torch.importer import importer
from eqsat_layout.readers.torch.nodes import TorchNodeError
from eqsat_layout.readers.torch.refused import check_is_not_random, check_is_pure, check_is_real

_logger = logging.getLogger("eqsat_layout")


def program_in(path: Path) -> Any:
    """The ``ExportedProgram`` in the archive at ``path``, of which torch reads a copy that was checked.

    Raises :class:`~eqsat_layout.readers.torch.archives.UnsafeArchiveError` for one that would run code.
    """
    export = importlib.import_module("torch.export")
    with tempfile.TemporaryDirectory(prefix="eqsat_layout_") as folder:
        copy = Path(folder) / "program.pt2"
        checked_archive(path, copy)
        with talk_to_log() as logged:
            try:
                return _without_ranges_of_multiples(export.load(copy))
            except RuntimeError as error:
                if not logged:
                    raise
                raise EqsatError(logged[-1]) from error  # the error says that it was logged


def _without_ranges_of_multiples(program: Any) -> Any:
    """Torch writes the range of ``2 * Dim("h")`` beside that of ``h``, and can't decompose what it reads so."""
    symbol = importlib.import_module("sympy").Symbol
    types = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    for size in (size for ty in types for size in getattr(ty, "shape", ()) if hasattr(size, "node")):
        ranges = size.node.shape_env.var_to_range
        for multiple in [one for one in ranges if not isinstance(one, symbol)]:
            del ranges[multiple]
    return program


def from_program(program: Any) -> Model:
    """Raises :class:`EqsatError` that names the node, and whatever else the frontend raises."""
    torch = importlib.import_module("torch")
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            check_is_not_random(node)
            check_is_real(node)
    if any(tensor.layout != torch.strided for tensor in program.state_dict.values()):
        return _converted(program, program)
    return _from_dense(program, _known_to_be_written_out(program))


def _known_to_be_written_out(program: Any) -> frozenset[Any]:
    """Ops that nothing converts and that torch writes in other ops: to write them all in them again takes as long as to
    export the program. What writes in place (``div_``) becomes what does not (``div``) anyway."""
    called = {
        node.target for node in program.graph.nodes if node.op == "call_function" and not _is_in_place(node.target)
    }
    taken, usual, written = importer().convert_map, decompositions(()), all_decompositions()
    return frozenset(op for op in called if op in written and op not in usual and op.__name__ not in taken)


def _is_in_place(op: Any) -> bool:
    return bool(getattr(getattr(op, "_schema", None), "is_mutable", False))


def _from_dense(program: Any, written_out: frozenset[Any]) -> Model:
    """``written_out``: ops that torch writes in other ops, and that are tried so because they can't be taken as one."""
    with talk_to_log(), assumptions(program) as assumed:
        decomposed = program.run_decompositions(decompositions(written_out))
    if assumed and written_out:  # those of torch's usual table choose between ways to compute the same
        names = ", ".join(sorted(map(str, written_out)))
        raise EqsatError(f"torch's definition of {names} holds only where {', and '.join(dict.fromkeys(assumed))}")
    for node in decomposed.graph.nodes:
        check_is_pure(node)
    if written := sorted(map(str, decomposed.graph_signature.buffers_to_mutate.values())):
        raise EqsatError(
            f"it writes to {', '.join(written)}, which would be lost: export the model after eval(), "
            "or make what it keeps an input and a result"
        )
    if written := sorted(map(str, decomposed.graph_signature.user_inputs_to_mutate.values())):
        _logger.warning("it writes to %s, which stays as it is: the results are what it would give", ", ".join(written))
    with_tensors_only(decomposed)
    _say_types(decomposed)
    try:
        return _converted(program, decomposed)
    except TorchNodeError as error:
        if error.op in written_out or error.op not in all_decompositions():
            raise
        _logger.debug("torch's own definition of %s is tried: %s", error.op, error)
        try:
            return _from_dense(program, written_out | {error.op})
        except TorchNodeError as later:
            if str(later.op).startswith("prims."):  # which no program of the user's has
                raise error from later
            raise


def _converted(given: Any, program: Any) -> Model:
    """``program``: what is ``given``, in ops that may have converters."""
    inputs = tensors_taken(given)
    reader = importer()
    with blocks_ended(lambda: getattr(reader, "block_builder", None)):
        module = reader.from_exported_program(program, False, False, False, None)
    names: dict[Any, str] = {}
    for node, made in reader.env.items():
        if _is_var(made):
            names[made] = _name(node) or names.get(made, "")
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


def _is_var(made: Any) -> bool:
    """The variable is a tensor; extents are variables too, and keep their names."""
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
