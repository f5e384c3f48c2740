"""Functions under other names.

In: a Relax function, and global variables by the ones that take their place. Out: the function that calls those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax


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
