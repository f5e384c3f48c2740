"""What an exported program takes and gives beside tensors: numbers, None, text, each as it was when it was exported.

In: a program. Out: the same without them, since torch has made constants of those that it takes, and those that it
gives are no results of a Relax function.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from eqsat_layout.errors import EqsatError

_logger = logging.getLogger("eqsat_layout")


def tensors_taken(program: Any) -> tuple[str, ...]:
    """The names of the inputs that are tensors."""
    return tuple(str(spec.arg.name) for spec in _user_inputs(program) if _is_tensor(spec))


def with_tensors_only(program: Any) -> None:
    """Drops all others of ``program``; :class:`EqsatError` for what is a number of each run."""
    dropped = [spec for spec in _user_inputs(program) if not _is_tensor(spec)]
    for spec in dropped:
        for node in program.graph.find_nodes(op="placeholder", target=spec.arg.name):
            if not hasattr(spec.arg, "value"):
                raise EqsatError(f"input {spec.arg.name!r} is a number of each run: give a tensor")
            if node.users:
                own = f"input {spec.arg.name!r} is {spec.arg.value!r}"
                raise EqsatError(f"{own}, no tensor, and {next(iter(node.users))} reads it")
            program.graph.erase_node(node)
    specs = program.graph_signature.input_specs
    specs[:] = [spec for spec in specs if not any(spec is one for one in dropped)]
    if dropped:
        _logger.info("what is no tensor stays as it was exported: %s", _said(dropped))
    _drop_results(program)


def _drop_results(program: Any) -> None:
    specs = program.graph_signature.output_specs
    kept = [at for at, spec in enumerate(specs) if not hasattr(spec.arg, "value")]
    if not kept:
        raise EqsatError("it gives no tensor")
    if len(kept) == len(specs):
        return
    _logger.info("results that are no tensors are left out: %s", _said([s for s in specs if hasattr(s.arg, "value")]))
    (output,) = program.graph.find_nodes(op="output")
    output.args = (tuple(output.args[0][at] for at in kept),)
    specs[:] = [specs[at] for at in kept]


def _said(specs: Sequence[Any]) -> str:
    return ", ".join(f"{spec.arg.name} = {spec.arg.value!r}" for spec in specs)


def _user_inputs(program: Any) -> list[Any]:
    return [spec for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]


def _is_tensor(spec: Any) -> bool:
    return type(spec.arg).__name__ == "TensorArgument"
