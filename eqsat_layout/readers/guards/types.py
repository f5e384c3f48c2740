"""The types that a graph of TVM claims for its values: true, or the graph is refused.

Text has types derived as it is parsed; JSON brings them along, and TVM takes them for granted: what checks a call by
the type of its operand is satisfied by a lie, and TVM's arithmetic ends the process at one. In: a module as it was
loaded. Out: nothing, or :class:`UnsafeTypeError`.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.relax.analysis import type_base_check
from tvm.relax.analysis.analysis import BaseCheckResult
from tvm.relax.op.op_attrs import EinsumAttrs, SplitAttrs

from eqsat_layout.notes import last_of
from eqsat_layout.readers.guards.subscripts import why_no_subscripts
from eqsat_layout.readers.guards.tensor_sizes import MOST_PARTS
from eqsat_layout.tir.structural import walk

_SAYS_ITSELF: Final = (ir.Var, ir.Call, ir.Op, relax.ExternFunc)
"""Variables are declared, and held against what is bound to them; calls of Relax TVM derives anew itself."""

_STATEMENTS: Final = (relax.MatchCast, tirx.For, tirx.IterVar, tirx.BufferStore)
"""What else holds expressions to each other."""

_REFUSALS: Final = (TypeError, ValueError, LookupError, AttributeError, AssertionError, tvm.error.InternalError)
"""What TVM's constructors raise."""


class UnsafeTypeError(ValueError):
    """A value that can't be of the type that stands with it."""


def check_types(mod: tvm.IRModule) -> None:
    """See above: every expression is made anew of its parts, and held against what the file says of it."""
    if name := _untyped(mod):
        raise UnsafeTypeError(f"{name}: an expression has no type; save what relax.transform.Normalize() gives")
    for var, function in mod.functions_items():
        for node in _distinct(function):
            _check_attributes(node, var.name_hint)
            _check(node, mod, var.name_hint)
    relax.analysis.well_formed(mod)


def _untyped(mod: tvm.IRModule) -> str | None:
    """The name of a function with an expression that has no type."""
    for name, function in mod.functions_items():
        if not all(map(_is_typed, _distinct(function))):
            return str(name.name_hint)
    return None


def _is_typed(node: Any) -> bool:
    """A file's missing type is a type without a kind."""
    return (
        not isinstance(node, ir.Expr)
        or isinstance(node, ir.Op)
        or (node.ty is not None and type(node.ty) is not ir.Type)
    )


def _distinct(function: Any) -> list[Any]:
    """Expressions, also those within types, and some statements; one that stands in several places once."""
    found: dict[int, Any] = {}
    types: dict[int, Any] = {}

    def see(node: Any) -> None:
        found.setdefault(node.__chandle__(), node)

    def see_variable(node: Any) -> None:
        see(node)
        if node.ty.__chandle__() not in types:
            types[node.ty.__chandle__()] = node.ty
            walk(node.ty, *visitors)

    visitors = (*((kind, see) for kind in (ir.Expr, *_STATEMENTS)), (ir.Var, see_variable))
    walk(function, *visitors)
    return list(found.values())


def _check_attributes(node: Any, function: str) -> None:
    """TVM makes a type for each part that a split is told to make, whatever stands with it, and a type of letters."""
    attrs = node.attrs if isinstance(node, ir.Call) else None
    if isinstance(attrs, EinsumAttrs) and (why := why_no_subscripts(str(attrs.subscripts))):
        raise UnsafeTypeError(f"{function}: {_named(node)}: {why}")
    parts = attrs.indices_or_sections if isinstance(attrs, SplitAttrs) else None
    if isinstance(parts, tirx.IntImm) and int(parts) > MOST_PARTS:
        raise UnsafeTypeError(f"{function}: {_named(node)} has {int(parts)} parts, more than {MOST_PARTS}")


def _check(node: Any, mod: tvm.IRModule, function: str) -> None:
    try:
        pairs = _claims(node, mod)
    except _REFUSALS as error:
        raise UnsafeTypeError(f"{function}: {_named(node)} can't be: {last_of(error)}") from None
    for claimed, made in pairs:
        if not _holds(claimed, made):
            raise UnsafeTypeError(f"{function}: {_named(node)} is said to be {_short(claimed)}, and is {_short(made)}")


def _claims(node: Any, mod: tvm.IRModule) -> list[tuple[Any, Any]]:
    """Types that a node says of something, each with that of the same thing made anew."""
    kind = type(node)
    if kind is relax.MatchCast:
        return [(node.var.ty, node.ty)]
    if kind in _STATEMENTS:
        kind(*_parts(node))
        return []
    if kind in (tirx.IntImm, tirx.FloatImm, tirx.Cast):  # of whatever type, if that can be
        made = [kind(str(node.ty.dtype), node.value).ty]
    elif kind is ir.TensorLoad:
        made = [tirx.BufferLoad(node.source, node.indices).ty]
    elif kind is ir.TensorRegion:
        made = [tirx.BufferRegion(node.source, node.region).ty]
    elif kind is ir.GlobalVar:
        made = [f.ty for v, f in mod.functions_items() if v.name_hint == node.name_hint]  # none: TVM says so
    elif kind is ir.GenericConst:
        return [(getattr(node.ty, "tensor_ty", node.ty), relax.const(node.value).ty)] if _is_tensor(node) else []
    elif kind is relax.SeqExpr:
        made = [node.body.ty]
    elif kind is relax.expr.If:
        made = [node.true_branch.ty, node.false_branch.ty]
    elif kind is tirx.PrimFunc:
        made = [tirx.PrimFunc(node.params, node.body, node.ret_type, node.attrs).ty]
    elif kind is relax.Function:
        is_false = type_base_check(node.ret_ty, node.body.ty) == BaseCheckResult.FAIL_L0 if node.ret_ty else False
        result = [(node.ret_ty, node.body.ty)] if is_false else []  # what only a run shows, TVM looks at when it runs
        return [(node.ty, relax.Function(node.params, node.body, node.ret_ty, node.is_pure).ty), *result]
    else:
        made = [] if issubclass(kind, _SAYS_ITSELF) else [kind(*_parts(node)).ty]
    return [(node.ty, ty) for ty in made]


def _is_tensor(node: Any) -> bool:
    return isinstance(node.value, tvm.runtime.Tensor)


def _parts(node: Any) -> list[Any]:
    """What the constructor of an expression takes: its fields, in their order."""
    return [getattr(node, field.name) for field in type(node).__tvm_ffi_type_info__.fields]


def _holds(claimed: Any, made: Any) -> bool:
    """Values of the type ``made`` are such as is claimed."""
    return bool(tvm_ffi.structural_equal(claimed, made)) or type_base_check(claimed, made) == BaseCheckResult.PASS


def _named(node: Any) -> str:
    if isinstance(node, relax.Function):
        return "its result"
    return f"{type(node).__name__} {' '.join(str(node).split())[:40]!r}"


def _short(ty: Any) -> str:
    return " ".join(str(ty).split())[:80]
