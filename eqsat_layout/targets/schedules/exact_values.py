"""Values that TVM's simplifier would change are hidden from it.

In: a PrimFunc. Out: the same with calls of ops unknown to TVM in such stores, or with the real ones again. The
simplifier takes floats for real numbers and integers for ones that never wrap around: where x is NaN, x == x becomes
true and not (x < 0) becomes x >= 0; (x * 2) // 2 becomes x. Ops by themselves have no such expressions, but ops that
are inlined into one another or read one tensor twice do.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.passes.guarded_divisions import (
    DIVISIONS,
    Trapping,
    guarded_division,
    guarded_division_in_c,
    is_integer,
)
from eqsat_layout.passes.rounding import is_rounding, without_idle_rounding
from eqsat_layout.passes.wrapping import WRAPPING, with_differences_as_sums, with_wrapping_values, wrapped, wrapped_in_c
from eqsat_layout.tir.arithmetic import truncated_div
from eqsat_layout.tir.intrinsics import is_choice, pure_op
from eqsat_layout.tir.structural import mapped_body, nodes_of, primfunc_pass, structural_map

_LANES: Final = re.compile(r"x\d+$")
_SAMPLES: Final = 4096
_FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -2.5, np.inf, -np.inf, np.nan, 1e-40, 3e38, -3e38)
_INTEGERS: Final = (0, 1, 2, -1, -2, 3, 7)

_BINARY: Final[Mapping[Any, Callable[[Any, Any], Any]]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.Div: truncated_div,
    tirx.FloorDiv: lambda a, b: np.floor_divide(a, np.where(b == 0, np.ones_like(b), b)),
    tirx.Mod: lambda a, b: np.fmod(a, np.where(b == 0, np.ones_like(b), b)),
    tirx.FloorMod: lambda a, b: np.mod(a, np.where(b == 0, np.ones_like(b), b)),
    tirx.Min: lambda a, b: np.where(a < b, a, b),
    tirx.Max: lambda a, b: np.where(a > b, a, b),
    tirx.EQ: operator.eq,
    tirx.NE: operator.ne,
    tirx.LT: operator.lt,
    tirx.LE: operator.le,
    tirx.GT: operator.gt,
    tirx.GE: operator.ge,
    tirx.And: operator.and_,
    tirx.Or: operator.or_,
    tirx.BitwiseAnd: operator.and_,
    tirx.BitwiseOr: operator.or_,
    tirx.BitwiseXor: operator.xor,
    tirx.LShift: operator.lshift,
    tirx.RShift: operator.rshift,
}
_UNARY: Final[Mapping[Any, Callable[[Any], Any]]] = {tirx.Not: np.logical_not, tirx.BitwiseNot: np.invert}

_UNEQUAL: Final = (operator.ne, lambda a, b: (a < b) | (a > b))
"""What ``NE`` may be of NaN: true on devices, false in LLVM's code for CPUs."""

_OPS: Final = {kind: pure_op(kind.__name__, "arithmetic that is not to be simplified") for kind in (*_BINARY, *_UNARY)}
"""By the kind of node that they stand for."""
_KINDS: Final = {str(op.name): kind for kind, op in _OPS.items()}
_MINUS_ZERO: Final = pure_op("MinusZero", "-0.0, which the simplifier takes for 0.0")
_INDEX_LIMITS: Final = {"int32": 1 << 30, "int64": 1 << 62}
"""Numbers beyond which arithmetic is none of indices, by the types that these have."""
_WITH_ZEROS: Final = ("float16", "float32", "float64")
"""Dtypes that are still there where it is revealed."""


def survives_simplification(value: Any) -> bool:
    """Whether the simplified ``value`` is the same for NaN, infinities, signed zeros, and integers near their ends.

    A difference is looked for with samples, so a "yes" is for what they show. What calls are given is simplified by
    itself.
    """
    if not all(map(survives_simplification, _given(value))):
        return False
    expression = _over_variables(value)
    try:
        simplified = tvm.sym.Analyzer().simplify(expression)
    except (tvm.error.InternalError, ValueError):  # it divides by 0, as it sees; a number leaves its type
        return False
    if tvm_ffi.structural_equal(expression, simplified):
        return True
    variables = list(dict.fromkeys(nodes_of(expression, tvm.ir.Var)))
    samples = dict(zip(variables, _samples([str(var.ty.dtype) for var in variables]), strict=True))
    is_asked = nodes_of(expression, tirx.NE) or nodes_of(simplified, tirx.NE)
    with np.errstate(all="ignore"):
        try:
            return all(
                _is_same(_evaluated(expression, samples, unequal), _evaluated(simplified, samples, unequal))
                for unequal in (_UNEQUAL if is_asked else _UNEQUAL[:1])
            )
        except _UnknownError:
            return False


def hide_arithmetic() -> Any:
    """A pass that does :func:`with_hidden_arithmetic`."""
    return primfunc_pass("HideArithmetic", with_hidden_arithmetic)


def hidden_node(node: Any) -> Any:
    """One of arithmetic of two operands, hidden."""
    return tvm.ir.Call(_OPS[type(node)], [node.a, node.b], ret_ty=node.ty)


def reveal_arithmetic(*, llvm: bool = False) -> Any:
    """A pass that does :func:`revealed`; ``llvm``: for that code generator; for C else."""
    return primfunc_pass("RevealArithmetic", _revealed_for_llvm if llvm else _revealed_for_c)


def with_hidden_arithmetic(func: Any) -> Any:
    """``func`` with the arithmetic of stores hidden that do not survive, divisions by what may be 0, and -0.0 beside
    0.0: of nested pads the simplifier makes one."""
    func = without_idle_rounding(func)
    return func.with_body(
        _with_hidden_divisions_and_zeros(structural_map(func.body, (tirx.BufferStore, _hidden_store)))
    )


def _with_hidden_divisions_and_zeros(body: Any) -> Any:
    """Without divisions that may trap, and without -0.0 where there is 0.0."""
    if {_is_minus(one) for one in nodes_of(body, tirx.FloatImm) if one.value == 0.0} == {True, False}:
        body = structural_map(body, (tirx.FloatImm, _hidden_zero))
    if not nodes_of(body, *DIVISIONS):
        return body
    trapping = Trapping(body)
    return structural_map(body, (DIVISIONS, lambda one: hidden_node(one) if trapping.may(one) else one))


def revealed(func: Any) -> Any:
    """The arithmetic again."""
    return mapped_body(func, (tvm.ir.Call, _revealed_call))


def _revealed_for_c(func: Any) -> Any:
    return revealed(with_wrapping_values(func, wrapped_in_c))


def _revealed_for_llvm(func: Any) -> Any:
    func = with_wrapping_values(func)
    return with_differences_as_sums(mapped_body(func, (tvm.ir.Call, _revealed_call_for_llvm)))


def _hidden_store(store: Any) -> Any:
    if survives_simplification(store.value) and not _divides_what_wraps(store.value):
        return store
    return tirx.BufferStore(store.buffer, _hidden_value(store.value), list(store.indices))


def _divides_what_wraps(value: Any) -> bool:
    """Division is lowered by the range of its operands, which is worked out as if arithmetic did not wrap around, and
    as if casts from unsigned integers were of what fits."""
    return any(
        _is_data(part) and nodes_of(part, *WRAPPING, tirx.LShift, tirx.Cast)
        for division in nodes_of(value, tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)
        if str(division.ty.dtype).startswith(("int", "uint"))
        for part in (division.a, division.b)
    )


def _is_data(node: Any) -> bool:
    """It reads some, or may wrap around as indices never do."""
    return bool(nodes_of(node, tvm.ir.TensorLoad)) or any(map(_may_wrap, nodes_of(node, *WRAPPING)))


def _may_wrap(node: Any) -> bool:
    if not is_integer(node):
        return False
    most = _INDEX_LIMITS.get(_element(str(node.ty.dtype)))
    numbers = [one for one in (node.a, node.b) if isinstance(one, tirx.IntImm)]
    return most is None or any(abs(int(one)) >= most for one in numbers)


def _given(node: Any) -> list[Any]:
    """What calls that are not looked into are given, but for those inside of these."""
    if not _is_data(node):
        return []
    parts = _parts(node)
    if parts is None:
        return [arg for arg in _arguments(node) if _is_data(arg)]
    return [one for part in parts for one in _given(part)]


def _arguments(node: Any) -> tuple[Any, ...]:
    """None of a call that is given places in memory: it is no function of values."""
    args = tuple(node.args) if isinstance(node, tvm.ir.Call) else ()
    return args if all(isinstance(arg.ty, tvm.ir.PrimType) for arg in args) else ()


def _hidden_value(node: Any) -> Any:
    parts = _parts(node)
    if parts is None and _arguments(node) and _is_data(node):
        return tvm.ir.Call(node.op, [_hidden_value(part) for part in node.args], node.attrs, ret_ty=node.ty)
    if parts is None or not _is_data(node):
        return node
    done = [_hidden_value(part) for part in parts]
    if is_choice(node):  # of whose values one may lie outside of a tensor
        return tvm.ir.Call(node.op, done, node.attrs, ret_ty=node.ty)
    if type(node) not in _OPS:
        return _of_parts(node, done)
    return tvm.ir.Call(_OPS[type(node)], done, ret_ty=node.ty)


def _hidden_zero(number: Any) -> Any:
    is_hidden = number.value == 0.0 and _is_minus(number) and str(number.ty.dtype) in _WITH_ZEROS
    return tvm.ir.Call(_MINUS_ZERO, [], ret_ty=number.ty) if is_hidden else number


def _is_minus(number: Any) -> bool:
    return math.copysign(1.0, number.value) < 0


def _revealed_call(call: Any) -> Any:
    kind = _KINDS.get(str(getattr(call.op, "name", "")))
    if kind is None:
        return _revealed_zero(call)
    if kind in DIVISIONS:
        return guarded_division_in_c(kind, *call.args)
    if kind in WRAPPING and str(call.ty.dtype).startswith("int"):
        return wrapped_in_c(kind, *call.args)
    return kind(*_of_one_type(call.args))


def _revealed_call_for_llvm(call: Any) -> Any:
    kind = _KINDS.get(str(getattr(call.op, "name", "")))
    if kind in WRAPPING:
        return wrapped(kind, *call.args)
    if kind in DIVISIONS:
        return guarded_division(kind, *call.args)
    return _revealed_zero(call) if kind is None else kind(*_of_one_type(call.args))


def _revealed_zero(call: Any) -> Any:
    return tirx.FloatImm(str(call.ty.dtype), -0.0) if call.op.same_as(_MINUS_ZERO) else call


def _of_one_type(args: Sequence[Any]) -> Sequence[Any]:
    """As wide as one another: what makes indices narrower may do so with one of two while they are hidden."""
    dtypes = {str(arg.ty.dtype) for arg in args}
    if len(dtypes) == 1:
        return args
    widest = max(dtypes, key=lambda dtype: int(tvm.DataType(dtype).bits))
    return [arg if str(arg.ty.dtype) == widest else tirx.Cast(widest, arg) for arg in args]


class _UnknownError(Exception):
    """An expression that has no meaning here."""


def _over_variables(value: Any) -> Any:
    """``value`` with variables for its loads, its calls, and what is worked out of iterators only, as indices
    are: these never wrap."""
    known: dict[int, Any] = {}

    def replaced(node: Any) -> Any:
        if isinstance(node, tirx.IntImm | tirx.FloatImm):
            return node
        parts = _parts(node)
        if parts is not None and _is_data(node):
            return _of_parts(node, [replaced(part) for part in parts])
        key = tvm_ffi.structural_hash(node)
        return known.setdefault(key, tirx.Var(f"v{len(known)}", str(node.ty.dtype)))

    return replaced(value)


def _parts(node: Any) -> tuple[Any, ...] | None:
    """What a node computes with; ``None`` for one that is not looked into."""
    if type(node) in _BINARY:
        return node.a, node.b
    if type(node) in _UNARY:
        return (node.a,)
    if isinstance(node, tirx.Cast):
        return (node.value,)
    if isinstance(node, tirx.Select):
        return node.condition, node.true_value, node.false_value
    if is_rounding(node) or is_choice(node):
        return tuple(node.args)
    return None


def _of_parts(node: Any, parts: Sequence[Any]) -> Any:
    """``node`` with other parts; nothing is simplified on the way."""
    if isinstance(node, tirx.Cast):
        return tirx.Cast(str(node.ty.dtype), *parts)
    if is_rounding(node):
        return tvm.ir.Call(node.op, list(parts), ret_ty=node.ty)
    if isinstance(node, tvm.ir.Call):
        return tirx.Select(*parts)  # of variables
    return type(node)(*parts)


def _samples(dtypes: Sequence[str]) -> list[npt.NDArray[Any]]:
    """Values for variables of these dtypes: all combinations of special ones, or many of them."""
    pools = [_pool(dtype) for dtype in dtypes]
    if math.prod(map(len, pools)) <= _SAMPLES:
        return [np.ravel(grid) for grid in np.meshgrid(*pools, indexing="ij")]
    random = np.random.default_rng(0)
    return [pool[random.integers(0, len(pool), _SAMPLES)] for pool in pools]


def _pool(dtype: str) -> npt.NDArray[Any]:
    kind = np.dtype(_element(dtype))
    if kind.kind == "V":  # bfloat16 and narrower ones, as NumPy has them
        kind = np.dtype("float32")
    if kind.kind == "b":
        return np.array([False, True])
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            return np.array(_FLOATS).astype(kind)
    ends = np.iinfo(kind)
    near = [ends.min, ends.min + 1, ends.max - 1, ends.max]
    return np.array([n for n in {*_INTEGERS, *near} if ends.min <= n <= ends.max], dtype=kind)


def _evaluated(
    node: Any, values: Mapping[Any, npt.NDArray[Any]], unequal: Callable[[Any, Any], Any]
) -> npt.NDArray[Any]:
    if isinstance(node, tvm.ir.Var):
        return values[node]
    if isinstance(node, tirx.IntImm | tirx.FloatImm):
        return np.asarray(node.value).astype(_numpy(node))
    parts = _parts(node)
    if parts is None:
        raise _UnknownError
    done = [_evaluated(part, values, unequal) for part in parts]
    if isinstance(node, tirx.NE):
        return np.asarray(unequal(*done))
    if type(node) in _BINARY:
        return np.asarray(_BINARY[type(node)](*done))
    if type(node) in _UNARY:
        return np.asarray(_UNARY[type(node)](*done))
    if isinstance(node, tirx.Cast):
        return done[0].astype(_numpy(node))
    if is_rounding(node):
        return done[0]
    return np.where(*done)


def _numpy(node: Any) -> str:
    dtype = _element(str(node.ty.dtype))
    return {"bfloat16": "float32"}.get(dtype, dtype)


def _element(dtype: str) -> str:
    """Of a vector, whose lanes are worked out each by itself."""
    return _LANES.sub("", dtype)


def _is_same(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Bit for bit, but for the payload of NaN; a result that is the same everywhere may have one element."""
    if a.dtype != b.dtype:
        return False
    a, b = np.broadcast_arrays(a, b)
    if a.dtype.kind != "f":
        return bool((a == b).all())
    return bool(((a == b) & (np.signbit(a) == np.signbit(b)) | np.isnan(a) & np.isnan(b)).all())
