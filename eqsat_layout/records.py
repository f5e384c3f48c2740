"""``dataclass`` and ``cached_property`` as the standard library has them, made in a quarter of the time.

In: a class. Out: the same with the methods of a dataclass, which :mod:`dataclasses` knows as one. The library compiles
up to six methods for each class, which was half of the time of the imports for a plan; here only ``__init__`` is
compiled, and the others are the same functions for all classes. Its ``cached_property`` takes a lock for each value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:
        """A value that is worked out when it is asked for first; threads that ask at once may each do so."""

        def __init__(self, function):
            self.function, self.__doc__ = function, function.__doc__

        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self.name] = self.function(instance)
            return value


__all__ = ["cached_property", "dataclass"]

_T = TypeVar("_T", bound=type)


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(
    cls: Any = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True, repr: bool = True
) -> Any:
    """:func:`dataclasses.dataclass` with these options, for fields that are parameters by place or none."""
    if cls is None:
        return lambda cls: dataclass(cls, frozen=frozen, slots=slots, eq=eq, repr=repr)
    has_hash = cls.__dict__.get("__hash__") is not None
    is_derived = any("__dataclass_params__" in vars(base) for base in cls.__mro__[1:])
    dataclasses.dataclass(init=False, repr=False, eq=False, frozen=frozen and is_derived)(cls)
    own = dataclasses.fields(cls)
    if slots:
        cls = _with_slots(cls, [f.name for f in own], frozen)
    params = cls.__dataclass_params__
    params.init, params.repr, params.eq, params.frozen = True, repr, eq, frozen
    _set_new(cls, "__init__", _init(cls, own))
    if repr:
        _set_new(cls, "__repr__", _repr(tuple(f.name for f in own if f.repr)))
    if eq:
        _set_new(cls, "__eq__", _eq(_values([f.name for f in own if f.compare])))
        if not has_hash:
            names = [f.name for f in own if (f.compare if f.hash is None else f.hash)]
            cls.__hash__ = _hash(_values(names)) if frozen else None
    if frozen:
        cls.__setattr__, cls.__delattr__ = _frozen(cls, frozenset(f.name for f in own))
    return cls


def _with_slots(cls: Any, names: list[str], frozen: bool) -> Any:
    """The class anew: a class that is there gets no slots any more."""
    known = {name for base in cls.__mro__[1:-1] for name in getattr(base, "__slots__", ())}
    left_out = {*names, "__dict__", "__weakref__"}
    said = {name: value for name, value in vars(cls).items() if name not in left_out}
    made = type(cls)(cls.__name__, cls.__bases__, {**said, "__slots__": tuple(n for n in names if n not in known)})
    made.__qualname__ = cls.__qualname__
    if frozen:
        made.__getstate__, made.__setstate__ = _state(names)
    return made


def _state(names: list[str]) -> tuple[Any, Any]:
    """For copies: what is frozen is not set."""

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __getstate__, __setstate__


def _set_new(cls: Any, name: str, function: Any) -> None:
    if name not in cls.__dict__:
        function.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, function)


def _init(cls: type, own: tuple[dataclasses.Field[Any], ...]) -> Any:
    known: dict[str, Any] = {"_set": object.__setattr__, "_made": _MADE}
    parameters, body = ["self"], []
    for f in own:
        value = f.name
        if f.default_factory is not dataclasses.MISSING:
            known[f"_f_{f.name}"] = f.default_factory
            value = f"_f_{f.name}()" if not f.init else f"_f_{f.name}() if {f.name} is _made else {f.name}"
            parameters += [f"{f.name}=_made"] if f.init else []
        elif f.default is not dataclasses.MISSING:
            known[f"_d_{f.name}"] = f.default
            parameters += [f"{f.name}=_d_{f.name}"] if f.init else []
            value = value if f.init else f"_d_{f.name}"
        elif f.init:
            parameters.append(f.name)
        else:
            continue
        body.append(f" _set(self, {f.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n" + ("\n".join(body) or " pass"), known)
    return known["__init__"]


_MADE = object()
"""In place of what a factory makes."""


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of these attributes."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda _: ()
    (name,) = names
    return lambda self: (getattr(self, name),)


def _eq(values: Callable[[Any], tuple[Any, ...]]) -> Any:
    def __eq__(self: Any, other: Any) -> Any:
        if self is other:
            return True
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Any:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _repr(names: tuple[str, ...]) -> Any:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _frozen(cls: type, names: frozenset[str]) -> tuple[Any, Any]:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)  # type: ignore[arg-type]

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)  # type: ignore[arg-type]

    return __setattr__, __delattr__
