"""Functions that the outside knows by name.

In: a function of a module. Out: whether it is public, and the same without its name. Those of a module have one each.
"""

from __future__ import annotations

from typing import Any, Final

from eqsat_layout.errors import MalformedModuleError

_ATTRIBUTE: Final = "global_symbol"


def is_public(function: Any) -> bool:
    """Whether the outside knows the function by its name."""
    return _name(function) is not None


def check_public_names(mod: Any) -> None:
    """:class:`MalformedModuleError` where nobody outside can call anything, or a name means two functions."""
    known: dict[str, str] = {}
    for var, function in mod.functions_items():
        name = _name(function)
        if name is not None and name in known:
            raise MalformedModuleError(
                f"{known[name]} and {var.name_hint} have one {_ATTRIBUTE}, {name!r}: name each by with_attr "
                f"({_ATTRIBUTE} of what te.create_prim_func makes is main)"
            )
        if name is not None:
            known[name] = var.name_hint
    if not known:
        raise MalformedModuleError(f"no function of the module is public: give one the attribute {_ATTRIBUTE}")


def _name(function: Any) -> str | None:
    name = None if function.attrs is None else function.attrs.get(_ATTRIBUTE)
    return None if name is None else str(name)


def without_public_name(function: Any) -> Any:
    """A function that is made of a public one must not have its name."""
    return function.without_attr(_ATTRIBUTE) if is_public(function) else function
