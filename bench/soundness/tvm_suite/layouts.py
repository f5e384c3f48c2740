"""Three layouts for every op that has any: channels last, blocks of four channels, and its axes in reverse.

In: a call. Out: layout names, from those that its own attributes say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import tvm
from tvm import relax

from eqsat_layout.graph.frozen import LayoutCallback

_FIELDS: Final = ("data_layout", "kernel_layout")


def _written(call: Any) -> list[str]:
    """The names of the axes of data and kernel; none where they have blocks already, or there are none."""
    names = [str(getattr(call.attrs, field, "") or "") for field in _FIELDS]
    names = names if any(names) else [str(getattr(call.attrs, "layout", "") or "")]
    found = [name for name in names if name]
    return found if all(name.isalpha() and name.isupper() for name in found) else []


def _channels_last(name: str, is_kernel: bool) -> str:
    inner = "I" if is_kernel else "C"
    return name.replace(inner, "") + inner


def _blocks(name: str, is_kernel: bool) -> str:
    return name + ("4o" if is_kernel else "4c")


def _reverse(name: str, _is_kernel: bool) -> str:
    return name[::-1]


def _callback(change: Any) -> LayoutCallback:
    def layouts(call: Any) -> list[str] | None:
        names = _written(call)
        return [change(name, i > 0) for i, name in enumerate(names)] or None

    return layouts


DESIRED: Final[Mapping[str, LayoutCallback]] = {
    "channels last": _callback(_channels_last),
    "blocks of four": _callback(_blocks),
    "axes in reverse": _callback(_reverse),
}


def has_layouts(mod: Any) -> bool:
    """Whether any call of the module says how its axes are called, or TVM can't look: something has no type yet."""
    found: list[Any] = []

    def look(expr: Any) -> None:
        if isinstance(expr, tvm.ir.Call) and _written(expr):
            found.append(expr)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            try:
                relax.analysis.post_order_visit(function, look)
            except tvm.error.InternalError:
                return True
    return bool(found)
