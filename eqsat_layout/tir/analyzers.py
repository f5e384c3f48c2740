"""Analyzers that know the ranges of axes.

In: axes, or the iteration variables of a block. Out: an analyzer in which each is bound to its range.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import tvm


class CountedAxis(Protocol):
    """Counts from 0 to its extent, where that is known."""

    @property
    def var(self) -> Any: ...
    @property
    def extent(self) -> Any: ...


def analyzer_over(axes: Iterable[CountedAxis]) -> Any:
    """An analyzer that knows the extents of these axes, as far as they are known."""
    analyzer = tvm.sym.Analyzer()
    for axis in axes:
        if axis.extent is not None:
            analyzer.bind(axis.var, tvm.ir.Range(0, axis.extent))
    return analyzer


def analyzer_of(iter_vars: Iterable[Any]) -> Any:
    """An analyzer that knows the domains of these iteration variables."""
    analyzer = tvm.sym.Analyzer()
    for axis in iter_vars:
        analyzer.bind(axis.var, axis.dom)
    return analyzer
