"""What is inside of expressions and statements, and mapping whose callbacks may fail.

In: a node of the IR and callbacks by type. Out: the mapped node, or what a callback raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import repeat
from typing import Any, Final, TypeAlias

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx

Rule: TypeAlias = tuple[Any, Callable[[Any], Any]]
"""Nodes of which types, or of which one, are replaced by what."""

# what tvm_ffi.structural_walk and structural_mutate call after they have looked at the signatures of the callbacks,
# which takes longer than to walk through an index
_WALK: Final = tvm_ffi.get_global_func("ffi.StructuralWalk")
_MUTATE: Final = tvm_ffi.get_global_func("ffi.StructuralMutate")
_DEFAULT_MUTATE: Final = tvm_ffi.get_global_func("ffi.StructuralMutatorDefaultMutate")
_SIZE: Final = tvm_ffi.get_global_func("ffi.ArraySize")
_ITEM: Final = tvm_ffi.get_global_func("ffi.ArrayGetItem")
_POST_ORDER: Final = int(tvm_ffi.WalkOrder.POSTORDER)

_BLOCK: Final = [
    "iter_vars",
    "reads",
    "writes",
    "name_hint",
    "body",
    "init",
    "alloc_buffers",
    "match_buffers",
    "annotations",
]
"""What makes a block."""
_LOOP: Final = ["loop_var", "min", "extent", "kind", "body", "thread_binding", "annotations", "step"]
"""What makes a loop."""


def structural_map(node: Any, *rules: Rule) -> Any:
    """A copy of ``node`` with nodes replaced, each after the nodes inside of it; raises what a callback raises.

    Not by ``tvm_ffi.structural_map``: when a callback raises there after one inside of its node replaced something,
    tvm-ffi 0.1.14 frees the replacement twice. It also makes a ``RuntimeError`` of exceptions whose types it does not
    know, so what was raised is kept.
    """
    raised: list[Exception] = []
    try:
        return _MUTATE(node, [(kind, _after_children(call, raised), False) for kind, call in _by_type(rules)])
    except Exception as error:
        raise (raised[0] if raised else error) from None


def structural_map_outermost(node: Any, *rules: Rule) -> Any:
    """The same from outside: what a callback gives stays as it is, and ``None`` lets it go on inside of the node."""
    raised: list[Exception] = []
    try:
        return _MUTATE(node, [(kind, _before_children(call, raised), False) for kind, call in _by_type(rules)])
    except Exception as error:
        raise (raised[0] if raised else error) from None


def mapped_body(func: Any, *rules: Rule) -> Any:
    """A PrimFunc with its body so mapped; itself where nothing in there is replaced: to make one takes long."""
    body = structural_map(func.body, *rules)
    return func if body.same_as(func.body) else func.with_body(body)


def substitute(node: Any, values: Mapping[Any, Any]) -> Any:
    """An expression or statement with ``values`` in the place of variables."""
    return structural_map(node, (tvm.ir.Var, lambda var: values.get(var, var)))


def changed_block(block: Any, **changes: Any) -> Any:
    """A block with other values of some of its fields, by their names."""
    return s_tir.SBlock(**{name: getattr(block, name) for name in _BLOCK} | changes)


def changed_loop(loop: Any, **changes: Any) -> Any:
    """The same for a loop."""
    return tirx.For(**{name: getattr(loop, name) for name in _LOOP} | changes)


def nodes_of(node: Any, *kinds: Any) -> list[Any]:
    """The nodes of these types inside of ``node``, itself included; one that is used twice may come twice."""
    found: list[Any] = []
    walk(node, *((kind, found.append) for kind in kinds))
    return found


def let_values(body: Any) -> dict[Any, Any]:
    """What each name that is bound in ``body`` stands for, without such names."""
    found: dict[Any, Any] = {}
    for one in nodes_of(body, tirx.Bind):
        found[one.var] = substitute(one.value, found)
    return found


def walk(node: Any, *rules: tuple[Any, Callable[[Any], None]]) -> None:
    """The rules' callbacks called with the nodes of their types inside of ``node``, each after those inside of it."""
    _WALK(node, _by_type(rules), [], _POST_ORDER)


def items_of(array: Any) -> tuple[Any, ...]:
    """What an array of tvm-ffi holds. Its own iterator checks every index, which takes twice as long."""
    return tuple(map(_ITEM, repeat(array), range(_SIZE(array))))


def _after_children(callback: Callable[[Any], Any], raised: list[Exception]) -> Callable[[Any, Any], Any]:
    def called(node: Any, mutator: Any) -> Any:
        inside = _DEFAULT_MUTATE(mutator, node)
        try:
            return callback(inside)
        except Exception as error:
            raised.append(error)
            raise

    return called


def _before_children(callback: Callable[[Any], Any], raised: list[Exception]) -> Callable[[Any, Any], Any]:
    def called(node: Any, mutator: Any) -> Any:
        try:
            given = callback(node)
        except Exception as error:
            raised.append(error)
            raise
        return _DEFAULT_MUTATE(mutator, node) if given is None else given

    return called


def _by_type(rules: Iterable[Rule]) -> list[tuple[int, Callable[[Any], Any]]]:
    """The rules by the number that tvm-ffi has for a type."""
    return [(_type_index(one), call) for kind, call in rules for one in (kind if isinstance(kind, tuple) else (kind,))]


@cache
def _type_index(kind: Any) -> int:
    return int(tvm_ffi.core.TypeSchema.from_annotation(kind).origin_type_index)


def is_one_of(node: Any, nodes: Iterable[Any]) -> bool:
    """Whether it is in ``nodes`` itself: ``in`` would build an expression that says so."""
    return any(node.same_as(one) for one in nodes)


def with_primfuncs(mod: tvm.IRModule, change: Callable[[str, Any], Any]) -> tvm.IRModule:
    """``mod`` with every PrimFunc as ``change`` gives it, by its name; ``mod`` itself where all stay the same."""
    return _with_functions(mod, tirx.PrimFunc, lambda var, function: change(str(var.name_hint), function))


def with_relax_functions(mod: tvm.IRModule, change: Callable[[Any], Any]) -> tvm.IRModule:
    """``mod`` with every Relax function as ``change`` gives it; ``mod`` itself where all stay the same."""
    return _with_functions(mod, relax.Function, lambda _, function: change(function))


def _with_functions(mod: tvm.IRModule, kind: Any, change: Callable[[Any, Any], Any]) -> tvm.IRModule:
    functions = {
        var: change(var, function) if isinstance(function, kind) else function
        for var, function in mod.functions_items()
    }
    if all(functions[var].same_as(function) for var, function in mod.functions_items()):
        return mod
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def primfunc_pass(name: str, change: Callable[[Any], Any]) -> Any:
    """A pass of TVM's that changes PrimFuncs one by one."""
    return tirx.transform.prim_func_pass(
        lambda func, _mod, _ctx: change(func), opt_level=0, name=f"eqsat_layout.{name}"
    )


def body_pass(name: str, *rules: Rule) -> Any:
    """The same, by :func:`mapped_body`."""
    return primfunc_pass(name, lambda func: mapped_body(func, *rules))
