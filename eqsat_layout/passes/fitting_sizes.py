"""Open sizes that have to be equal, which TVM does not check: elements are left out, or others are read.

In: a Relax module. Out: the same, whose functions fail where a reshape would not hold as many elements as it reads, or
where operands are not as long as each other along an axis that is summed over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, sym, tirx

from eqsat_layout.graph.legalised_calls import legalise_calls
from eqsat_layout.graph.templates import leaf_exprs
from eqsat_layout.tir.structural import nodes_of, with_relax_functions

_Claim = tuple[Any, Any]
"""Sizes: of what is read, and of what it has to be."""

_ONE: Final = tirx.IntImm("int64", 1)
_KEEP_ELEMENTS: Final = ("relax.reshape", "relax.squeeze")
"""What gives as many elements as it reads, by what it says."""


def check_sizes_fit(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where all sizes are known to fit."""
    return with_relax_functions(mod, _checked)


def _checked(function: Any) -> Any:
    known = {var for param in function.params for var in nodes_of(param.ty, ir.Var)}
    blocks = list(function.body.blocks) if known and isinstance(function.body, relax.SeqExpr) else []
    calls = [  # those of branches may not be run
        (one.value, one.var)
        for block in blocks
        for one in block.bindings
        if not isinstance(one, relax.MatchCast) and isinstance(one.value, ir.Call) and isinstance(one.value.op, ir.Op)
    ]
    claims = [*_of_reshapes(calls), *_of_sums(calls)]
    found = {tvm_ffi.StructuralKey(relax.ShapeExpr(one)): one for one in claims if _is_open(one, known)}
    if not found:
        return function
    checks = [binding for claim in found.values() for binding in _check(*claim)]
    made = [relax.BindingBlock(checks), *blocks]  # in front, where it ends no region
    body = relax.SeqExpr(made, function.body.body)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


def _is_open(claim: _Claim, known: Collection[Any]) -> bool:
    """It may be wrong, and the sizes are ``known`` where the function begins."""
    is_told = all(var in known for one in claim for var in tirx.analysis.undefined_vars(one))
    return is_told and not sym.Analyzer().can_prove_equal(*claim)


def _check(read: Any, made: Any) -> list[Any]:
    """TVM's machine compares variables with numbers."""
    none = relax.ShapeType([tirx.IntImm("int64", 0)])
    more = relax.ShapeExpr([sym.Analyzer().simplify(read - made)])
    var = relax.Var("more", relax.ShapeType(more.values))
    return [relax.VarBinding(var, more), relax.MatchCast(relax.Var("fits", none), var, none)]


def _of_reshapes(calls: Sequence[tuple[Any, Any]]) -> Iterator[_Claim]:
    for call, var in calls:
        if call.op.name in _KEEP_ELEMENTS:
            read, made = _extents(call.args[0].ty), _extents(var.ty)
            if read is not None and made is not None:
                yield _product(read), _product(made)


def _of_sums(calls: Sequence[tuple[Any, Any]]) -> Iterator[_Claim]:
    """Of calls with open sizes that their results have not. Which axes are summed over is read off their TIR; a kernel
    of the user's may read a part of what it is given."""
    reducing = [call for call, var in calls if _is_op(call) and _loses_a_size(call, var)]
    for call, found in zip(reducing, legalise_calls(reducing) if reducing else (), strict=True):
        extents = [_extents(leaf.ty) or [] for leaf in leaf_exprs(call)]
        for axes in () if found.func is None else _summed_together(found.func):
            yield from pairwise([extents[at][axis] for at, axis in axes if at < len(extents)])


def _is_op(call: Any) -> bool:
    return bool(call.op.has_attr("FLegalize")) and not nodes_of(call, ir.GlobalVar)


def _loses_a_size(call: Any, var: Any) -> bool:
    extents = [_extents(leaf.ty) for leaf in leaf_exprs(call)]
    if len(extents) < 2 or None in extents:
        return False
    own = [one for one in _extents(var.ty) or () if not isinstance(one, tirx.IntImm)]
    given = [extent for one in extents for extent in one or () if not isinstance(extent, tirx.IntImm)]
    return any(not any(ir.prim.expr_deep_equal(extent, one) for one in own) for extent in given)


def _summed_together(func: Any) -> list[list[tuple[int, int]]]:
    """For each axis that is summed over, the operands and their axes that it runs along; those of copies with other
    borders are those of what is copied."""
    places: dict[tuple[Any, int], tuple[int, int]] = {
        (param, axis): (at, axis)
        for at, param in enumerate(func.params)
        for axis in range(len(getattr(param.ty, "shape", ())))
    }
    found: list[list[tuple[int, int]]] = []
    for block in nodes_of(func.body, s_tir.SBlock):
        written = [region.source for region in block.writes]
        for one in block.iter_vars:
            axes = [axis for region in block.reads for axis in _along(region, one.var) if axis[0] not in written]
            read = list(dict.fromkeys(places[axis] for axis in axes if axis in places))
            if one.iter_type == tirx.IterVar.CommReduce:
                found.append(read)
            elif len(read) == 1 and len(axes) == 1:
                copied = [axis for region in block.writes for axis in _along(region, one.var)]
                sizes = [axis[0].ty.shape[axis[1]] for axis in (*axes, *copied)]
                if all(_is_as_long(sizes[0], size) for size in sizes):
                    places |= dict.fromkeys(copied, read[0])
    return found


def _is_as_long(read: Any, made: Any) -> bool:
    """Or has to be: TVM makes a copy of the weights of a transposed convolution as long as the data are."""
    has_to_be = isinstance(made, ir.Var) and isinstance(read, ir.Var | tirx.IntImm)
    return has_to_be or bool(sym.Analyzer().can_prove_equal(read, made))


def _along(region: Any, var: Any) -> list[tuple[Any, int]]:
    """The axes of a region that are read by ``var`` itself."""
    return [(region.source, axis) for axis, one in enumerate(region.region) if one.min.same_as(var)]


def _product(extents: Sequence[Any]) -> Any:
    return sym.Analyzer().simplify(reduce(lambda a, b: a * b, extents, _ONE))


def _extents(ty: Any) -> list[Any] | None:
    shape = getattr(ty, "shape", None)
    return list(shape.values) if isinstance(shape, relax.ShapeExpr) else None
