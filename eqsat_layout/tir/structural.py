"""What is inside of expressions and statements, and mapping whose callbacks may fail (tir room).

In: a node of the IR and callbacks by type. Out: the mapped node, or what a callback raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import tvm
import tvm_ffi

Rule: TypeAlias = tuple[Any, Callable[[Any], Any]]
"""Nodes of which types, or of which one, are replaced by what."""


def structural_map(node: Any, *rules: Rule) -> Any:
    """A copy of ``node`` with nodes replaced, each after the nodes inside of it; raises what a callback raises.

    Not by ``tvm_ffi.structural_map``: when a callback raises there after one inside of its node replaced something,
    tvm-ffi 0.1.14 frees the replacement twice. It also makes a ``RuntimeError`` of exceptions whose types it does not
    know, so what was raised is kept.
    """
    raised: list[Exception] = []
    try:
        return tvm_ffi.structural_mutate(node, [(kind, _after_children(callback, raised)) for kind, callback in rules])
    except Exception as error:
        raise (raised[0] if raised else error) from None


def substitute(node: Any, values: Mapping[Any, Any]) -> Any:
    """An expression or statement with ``values`` in the place of variables."""
    return structural_map(node, (tvm.ir.Var, lambda var: values.get(var, var)))


def nodes_of(node: Any, *kinds: Any) -> list[Any]:
    """The nodes of these types inside of ``node``, itself included; one that is used twice may come twice."""
    found: list[Any] = []
    tvm_ffi.structural_walk(node, [(kind, found.append) for kind in kinds])
    return found


def _after_children(callback: Callable[[Any], Any], raised: list[Exception]) -> Callable[[Any, Any], Any]:
    def called(node: Any, mutator: Any) -> Any:
        inside = mutator.default_mutate(node)
        try:
            return callback(inside)
        except Exception as error:
            raised.append(error)
            raise

    return called
