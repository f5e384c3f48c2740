"""Names that Relax text can hold: torch calls layers ``0`` and ONNX may call a node ``if``.

In: a module. Out: the same with other names for variables that TVM's parser, or the guard before it, would not take.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from typing import Any, Final

import tvm
from tvm import relax

from eqsat_layout.readers.text.script_words import CASTS
from eqsat_layout.tir.structural import nodes_of, substitute, with_relax_functions

_TAKEN: Final = frozenset((*keyword.kwlist, *CASTS, "Axis", "TypeVar", "metadata"))
"""The printer itself keeps away from TVMScript's other words."""


def with_names_of_text(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` with a ``v_`` in front of the variables' names that can't be written."""
    return with_relax_functions(mod, _renamed)


def _renamed(function: Any) -> Any:
    sizes = _others_for(relax.analysis.defined_symbolic_vars(function))
    function = function.bind_symbolic_vars(sizes) if sizes else function
    variables = _others_for(nodes_of(function, relax.Var))
    return substitute(function, variables) if variables else function


def _others_for(variables: Iterable[Any]) -> dict[Any, Any]:
    return {var: type(var)(f"v_{name}", var.ty) for var in variables if not _is_of_text(name := str(var.name))}


def _is_of_text(name: str) -> bool:
    printed = re.sub(r"\W", "_", name.encode().decode("latin-1"), flags=re.ASCII)  # an underscore for each byte
    return printed.isidentifier() and not printed.startswith("__") and printed not in _TAKEN
