"""Functions under other names.

In: a Relax function, and by global variable the one that takes its place. Out: the function that calls those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax


def variable_like(var: Any, name: str) -> Any:
    """A global variable of that name for a function of the same type."""
    found = tvm.ir.GlobalVar(name)
    relax.expr._update_type(found, var.ty)
    return found


def renamed(function: Any, names: Mapping[Any, Any]) -> Any:
    """``function`` with other functions in the place of those that it mentions."""
    return _Renamer(names).visit_expr(function)


@relax.expr_functor.mutator
class _Renamer(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, names: Mapping[Any, Any]) -> None:
        super().__init__()
        self._names = names

    def visit_global_var_(self, var: Any) -> Any:
        return self._names.get(var, var)
