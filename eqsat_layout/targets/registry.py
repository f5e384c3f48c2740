"""Finding targets: the folders beside this file, and the packages of others.

In: a target as a user gives it. Out: a :class:`Target`. A folder's ``__init__`` says ``KINDS``, and its module
``target`` has ``make_target(given, approx)``. A package elsewhere names such a function in the entry point group
``eqsat_layout.targets``, under its kind; tests and notebooks call :func:`register`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

import tvm

import eqsat_layout.targets
from eqsat_layout.errors import TargetError
from eqsat_layout.targets.checked import Factory, checked_factory, factory_of
from eqsat_layout.targets.protocol import Target

GROUP: Final = "eqsat_layout.targets"
"""The entry point group of targets in other packages."""

_DEFAULT: Final = "llvm"
_registered: dict[str, Factory] = {}


def target(given: Any = None, *, approx: bool = True) -> Target:
    """The target that ``given`` is: ``None`` is this machine's CPU; else a string, a dict, a ``tvm.target.Target``, or
    a :class:`Target` already, which is then made exact, or need not be, as ``approx`` says.

    Raises :class:`~eqsat_layout.errors.TargetError` for one that is unknown, can't be built for here, or whose package
    fails to make it.
    """
    if isinstance(given, Target):
        return given if given.approx == approx else given.with_approx(approx)
    kind = _kind_of(given)
    factory = _registered.get(kind) or _built_in().get(kind) or _factories().get(kind)
    if factory is None:
        raise TargetError(f"there is no target of kind {kind!r}; there are {', '.join(map(repr, kinds()))}")
    return factory(_DEFAULT if given is None else given, approx)


def resolved(given: Any = None, *, approx: bool = True) -> Target:
    """``given`` itself where it is a :class:`Target` already, else :func:`target`."""
    return given if isinstance(given, Target) else target(given, approx=approx)


def kinds() -> list[str]:
    """The kinds of targets that there are."""
    return sorted({*_factories(), *_registered})


def register(kind: str, factory: Factory) -> None:
    """Makes a target known by its kind in this process, in place of one that had it."""
    _registered[kind] = checked_factory(kind, factory)


def unregister(kind: str) -> None:
    """Takes back :func:`register`."""
    _registered.pop(kind, None)


def is_registered(kind: str) -> bool:
    """Whether :func:`register` took the place of what is built in, or came first."""
    return kind in _registered


@cache
def _built_in() -> Mapping[str, Factory]:
    found: dict[str, Factory] = {}
    for folder in pkgutil.iter_modules(eqsat_layout.targets.__path__):
        package = importlib.import_module(f"{eqsat_layout.targets.__name__}.{folder.name}") if folder.ispkg else None
        for kind in getattr(package, "KINDS", ()):
            found[kind] = _lazily(f"{package.__name__}.target")  # type: ignore[union-attr]
    return found


@cache
def _factories() -> Mapping[str, Factory]:
    """Built-in ones, and those of installed packages, all of whose entry points are read for that."""
    found = dict(_built_in())
    for entry in entry_points(group=GROUP):
        found.setdefault(entry.name, factory_of(entry))
    return found


def _lazily(module: str) -> Factory:
    """The factory of a built-in target, imported when it is asked for."""

    def make(given: Any, approx: bool) -> Target:
        made: Target = importlib.import_module(module).make_target(given, approx)
        return made

    return make


def _kind_of(given: Any) -> str:
    if given is None:
        return _DEFAULT
    if isinstance(given, tvm.target.Target):
        return str(given.kind.name)
    if isinstance(given, Mapping) and "kind" in given:
        return str(given["kind"])
    if isinstance(given, str) and (given in _registered or given in _built_in() or given in _factories()):
        return given
    return str(parsed(given).kind.name)


def parsed(given: Any) -> tvm.target.Target:
    """``given`` as TVM reads it; :class:`TargetError` with its reason where it does not."""
    if isinstance(given, tvm.target.Target):
        return given
    if not isinstance(given, str | Mapping):
        raise TargetError(f"a target is a string, a dict or a tvm.target.Target, not {type(given).__name__}")
    try:
        return tvm.target.Target(given if isinstance(given, str) else dict(given))
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        known = f"; there are {', '.join(map(repr, kinds()))}" if isinstance(given, str) else ""
        raise TargetError(f"unknown target {given!r}: {reason}{known}") from error
