"""Functions that the outside knows by name.

In: a function of a module. Out: whether it is public, and the same without its name.
"""

from __future__ import annotations

from typing import Any, Final

_ATTRIBUTE: Final = "global_symbol"


def is_public(function: Any) -> bool:
    """Whether the outside knows the function by its name."""
    return function.attrs is not None and function.attrs.get(_ATTRIBUTE) is not None


def without_public_name(function: Any) -> Any:
    """A function that is made of a public one must not have its name."""
    return function.without_attr(_ATTRIBUTE) if is_public(function) else function
