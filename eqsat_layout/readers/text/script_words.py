"""The words of TVMScript: what ``I``, ``R`` and ``T`` mean in a text that is read.

Out: a tree of names with nothing behind them but the functions that build IR, derived from TVM's own script modules.
A text is evaluated with these objects and no others, so what is not here can't be reached, however it is spelled.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final, TypeVar

import tvm
from tvm.script.parser import ir, relax, tirx
from tvm.tirx.layout import Axis

from eqsat_layout.errors import EqsatError

OWN_FUNCTIONS: Final = ("tvm.relax.type.infer_by_ty_args", "tvm.relax.type.infer_view_ty")
"""The functions of TVM that a type may name, to be called for the type of a call's result."""

CASTS: Final[Mapping[str, Any]] = {"bool": bool, "float": float, "int": int, "range": range}
"""The only builtins. ``range`` stands behind ``for ... in`` alone, where TVM makes a loop of it."""

_HOMES: Final = {
    "I": ("tvm.ir", "tvm.script.ir_builder.ir.ir", "tvm.script.parser.ir.entry"),
    "R": (
        "tvm.relax.op.",
        "tvm.relax.expr",
        "tvm.ir.expr",
        "tvm.relax.script.builder",
        "tvm.relax.script.parser",
        "tvm.relax.distributed.global_info",
        "tvm.runtime._tensor",
        "tvm_ffi._tensor",
    ),
    "T": ("tvm.tirx", "tvm.ir.expr", "tvm.ir.prim", "tvm.target.codegen"),
}
"""Modules whose functions and classes build IR, by the name that imports them."""

_TAKE_PYTHON: Final = frozenset((
    "BasePyModule", "call_kernel", "call_py_func", "decl_function", "def_function", "emit_te", "inline", "jit", "macro",
    "meta_class", "meta_var", "pyfunc", "register_script_namespace", "rewriter",
))  # fmt: skip
"""Among them those that take Python code or what is no part of a module; what is printed never names them."""

_NAMESPACES: Final = ("tvm.relax.op.", "tvm.relax.script.parser.dist", "tvm.relax.script.builder.distributed")


class Words:
    """A dotted name that others stand behind, such as ``R.nn``."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        self.__dict__.update(members)


class Nothing:
    """Stands for a builtin of Python, so that its name means nothing until the text gives it a meaning."""


def vocabulary(check_extent: Callable[[str], None]) -> dict[str, Any]:
    """All names that a text may use before it defines any.

    ``check_extent`` raises for a quoted extent, which TVM evaluates, such as ``"n * 4"``.
    """
    roots = {name: _words(name, module) for name, module in (("I", ir), ("R", relax), ("T", tirx))}
    extents = functools.partial(_with_extents, check_extent)
    types: dict[str, Any] = {"Tensor": extents(relax.Tensor, "shape"), "Shape": extents(relax.Shape, "values")}
    types |= {"DTensor": extents(relax.DTensor, "shape"), "Callable": _callable_type}
    types["dist"] = Words(vars(vars(roots["R"])["dist"]) | {"DTensor": types["DTensor"]})
    roots["R"] = Words(vars(roots["R"]) | types)
    axes = {name: getattr(Axis, name) for name in tvm.tirx.layout.__all__ if isinstance(_member(Axis, name), Axis)}
    return {**roots, "Axis": Words(axes), "TypeVar": TypeVar, **CASTS}


def no_builtins(bound: frozenset[str]) -> dict[str, Any]:
    """What keeps Python's own functions out of all that TVM evaluates in a text that binds these names.

    TVM looks a name up among them where the text has not given it a meaning yet.
    """
    hidden = {name: Nothing() for name in bound if hasattr(builtins, name)}
    return {"__builtins__": {}, **hidden}


def _words(root: str, module: ModuleType) -> Words:
    return Words(dict(_members(module, _HOMES[root])))


def _members(module: Any, homes: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name in dir(module):
        if name.startswith("_") or name in _TAKE_PYTHON:
            continue
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            if f"{value.__name__}.".startswith(_NAMESPACES):
                yield name, Words(dict(_members(value, homes)))
        elif value is tirx.axis:
            yield name, Words({kind: getattr(value, kind) for kind in vars(value) if not kind.startswith("_")})
        elif _home(value).startswith(homes) and _builds(value):
            yield name, value


def _home(value: Any) -> str:
    while isinstance(value, functools.partial):
        value = value.func
    return str(getattr(value, "__module__", None) or getattr(type(value), "__module__", ""))


def _builds(value: Any) -> bool:
    """A function, a class of IR, or what stands for a type; no plain Python class and no plug-in's namespace."""
    if isinstance(value, type):
        return issubclass(value, tvm.runtime.Object)
    return callable(value) or hasattr(type(value), "__getitem__")


def _member(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        return None


def _with_extents(check_extent: Callable[[str], None], make: Callable[..., Any], keyword: str) -> Callable[..., Any]:
    """``make`` of a type, with the quoted extents of its shape checked: TVM gives them to ``eval``."""

    def checked(*args: Any, **options: Any) -> Any:
        shape = options.get(keyword, args[0] if args else None)
        if isinstance(shape, str | tvm.ir.Expr):  # a dtype alone, or a shape as a value
            return make(*args, **options)
        if not isinstance(shape, list | tuple | None):
            raise EqsatError(f"a shape is a list of extents, not a {type(shape).__name__}")
        for extent in shape or ():
            if isinstance(extent, str):
                check_extent(extent)
        return make(*args, **options)

    return checked


def _callable_type(params: Any = None, ret: Any = None, purity: Any = None, derive_func: Any = None) -> Any:
    """``R.Callable``, whose ``derive_func`` may be any function of the process by its name: TVM would call it."""
    if derive_func is not None and not (isinstance(derive_func, str) and derive_func in OWN_FUNCTIONS):
        raise EqsatError(f"derive_func={derive_func!r} is none of {', '.join(OWN_FUNCTIONS)}")
    return relax.Callable(params, ret, purity, derive_func)
