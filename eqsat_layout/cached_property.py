"""``functools.cached_property`` without the lock that it takes before Python 3.12.

In: a method. Out: a property that is worked out once. To take the lock takes longer than most of what is kept so. Two
threads that ask at once may both work it out, as from Python 3.12 on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

if sys.version_info >= (3, 12):
    from functools import cached_property
else:
    _T = TypeVar("_T")

    class cached_property(Generic[_T]):
        """As that of ``functools``: a value in the instance's ``__dict__`` goes before it."""

        def __init__(self, func: Callable[[Any], _T]) -> None:
            self._func = func
            self.__doc__ = func.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        @overload
        def __get__(self, instance: None, owner: type | None = None) -> cached_property[_T]: ...
        @overload
        def __get__(self, instance: object, owner: type | None = None) -> _T: ...
        def __get__(self, instance: object | None, owner: type | None = None) -> cached_property[_T] | _T:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._func(instance)
            return value


__all__ = ["cached_property"]
