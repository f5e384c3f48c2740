"""Kernels of narrow floats that compute in float32, as CPUs do.

In: PrimFuncs of blocks, before they are scheduled. Out: the same with operands of bfloat16, float16 and 8-bit floats
cast where they are read, results where they are stored, and everything between in float32: buffers of their own too,
sums above all. What :mod:`.rounding` says is rounded between ops still is. Schedules then know one kind of float:
vectors of it, its functions as arithmetic.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import s_tir, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.passes.rounding import ROUNDED, is_rounding, rounded
from eqsat_layout.tir.blocks import storing_block
from eqsat_layout.tir.intrinsics import OF_BITS, calls_library, is_pure
from eqsat_layout.tir.structural import (
    changed_block,
    nodes_of,
    structural_map,
    structural_map_outermost,
    substitute,
    with_primfuncs,
)

_WIDE: Final = "float32"
_HELD: Final = ("bool", "int8", "uint8")
"""Numbers that every narrow type of 16 bits holds."""
_ARITHMETIC: Final = (
    *(tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod, tirx.Max, tirx.Min),
)
_COMPARISONS: Final = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def in_single_precision(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` with each PrimFunc as :func:`wide_floats` gives it."""
    return with_primfuncs(mod, lambda _, func: wide_floats(func))


def wide_floats(func: Any) -> Any:
    """``func`` itself where it has no narrow floats, or does with them what is not looked into."""
    if not isinstance(func.body, s_tir.SBlockRealize) or func.body.block.iter_vars or calls_library(func):
        return func
    if not any(map(_is_narrow, (*func.params, *_allocated(func), *nodes_of(func.body, tirx.Cast)))):
        return func
    try:
        return _Widener(_with_wide_names(func)).widened()
    except Refused:
        return func


def _allocated(func: Any) -> list[Any]:
    return [buffer for block in nodes_of(func.body, s_tir.SBlock) for buffer in block.alloc_buffers]


def _is_narrow(one: Any) -> bool:
    return str(getattr(one.ty, "dtype", "")) in ROUNDED


def _with_wide_names(func: Any) -> Any:
    """``func`` with float32 in all values that have names."""
    named = nodes_of(func.body, tirx.Let, tirx.Bind)
    wide = {node.var: tirx.Var(str(node.var.name), _WIDE) for node in named if _is_narrow(node.var)}
    if not wide:
        return func

    def let(node: Any) -> Any:
        var = wide.get(node.var)
        return node if var is None else tirx.Let(var, tirx.Cast(_WIDE, node.value), node.body)

    def bind(node: Any) -> Any:
        var = wide.get(node.var)
        return node if var is None else tirx.Bind(var, tirx.Cast(_WIDE, node.value))

    body = structural_map(func.body, (tirx.Let, let), (tirx.Bind, bind))
    return func.with_body(substitute(body, {old: _unrounded(old, new) for old, new in wide.items()}))


def _unrounded(old: Any, new: Any) -> Any:
    """What has the type of ``old`` until :class:`_Widener` takes ``new`` for it."""
    return tirx.Cast(str(old.ty.dtype), new)


class _Widener:
    def __init__(self, func: Any) -> None:
        self._func = func
        blocks = nodes_of(func.body, s_tir.SBlock)
        if any(block.match_buffers for block in blocks):
            raise Refused("parts of buffers have names of their own")
        self._named = {node.var for node in nodes_of(func.body, tirx.Let, tirx.Bind)}
        self._again = self._read_again([block for block in blocks if not nodes_of(block.body, s_tir.SBlock)])
        """Results that are read: sums, and what other blocks go on with. They are rounded at the end."""
        own = [buffer for buffer in (*_allocated(func), *self._again) if _is_narrow(buffer)]
        self._wide = {one: tirx.decl_buffer(one.shape, _WIDE, one.name, scope=one.scope()) for one in own}

    def _read_again(self, blocks: list[Any]) -> list[Any]:
        params = [param for param in self._func.params if _is_narrow(param)]
        found = dict[Any, None]()
        written = set[Any]()
        for block in blocks:
            stored = {store.buffer for store in nodes_of(block, tirx.BufferStore)}
            loaded = {load.source for load in nodes_of(block, tvm.ir.TensorLoad)}
            for param in params:
                if param in stored and param in loaded and block.init is None and param not in written:
                    raise Refused(f"{param.name} is read before it is written")
                if param in stored:
                    written.add(param)
                if param in loaded and param in written:
                    found[param] = None
        return list(found)

    def widened(self) -> Any:
        root = self._func.body.block
        body = self._plain(root.body)
        statements = [*(body.seq if isinstance(body, tirx.SeqStmt) else [body]), *map(self._result, self._again)]
        root = changed_block(
            root,
            body=tirx.SeqStmt(statements) if statements[1:] else body,
            alloc_buffers=[*root.alloc_buffers, *self._again],
        )
        return self._func.with_body(s_tir.SBlockRealize([], True, structural_map(root, (s_tir.SBlock, self._block))))

    def _block(self, block: Any) -> Any:
        def region(one: Any) -> Any:
            is_kept = one.source not in self._wide or block.name_hint == f"{one.source.name}_rounded"
            return one if is_kept else tirx.BufferRegion(self._wide[one.source], one.region)

        reads, writes = (list(map(region, regions)) for regions in (block.reads, block.writes))
        allocated = [self._wide.get(buffer, buffer) for buffer in block.alloc_buffers]
        return changed_block(block, reads=reads, writes=writes, alloc_buffers=allocated)

    def _result(self, result: Any) -> Any:
        """A block that rounds a result."""
        axes = [
            tirx.IterVar(tvm.ir.Range(0, extent), tvm.ir.Var(f"v{n}", extent.ty), tirx.IterVar.DataPar)
            for n, extent in enumerate(result.shape)
        ]
        place = [axis.var for axis in axes]
        value = tirx.Cast(str(result.dtype), tirx.BufferLoad(self._wide[result], place))
        return storing_block(axes, f"{result.name}_rounded", tirx.BufferStore(result, value, place))

    def _plain(self, node: Any) -> Any:
        """A statement, or an expression of another type than those that are narrow."""
        return structural_map_outermost(
            node,
            (tirx.BufferStore, self._store),
            (tirx.Cast, self._cast),
            (_COMPARISONS, self._comparison),
            (tvm.ir.Call, self._call),
        )

    def _store(self, store: Any) -> Any:
        if not _is_narrow(store.value):
            return None
        value, place = self._wide_value(store.value), list(map(self._plain, store.indices))
        wide = self._wide.get(store.buffer)
        if wide is not None:
            return tirx.BufferStore(wide, value, place)
        return tirx.BufferStore(store.buffer, _narrowed(str(store.value.ty.dtype), value), place)

    def _cast(self, cast: Any) -> Any:
        if not _is_narrow(cast.value):
            return None
        value, dtype = self._wide_value(cast.value), str(cast.ty.dtype)
        return value if dtype == _WIDE else tirx.Cast(dtype, value)

    def _comparison(self, node: Any) -> Any:
        return type(node)(*map(self._wide_value, (node.a, node.b))) if _is_narrow(node.a) else None

    def _call(self, call: Any) -> Any:
        if not any(map(_is_narrow, call.args)):
            return None
        return tvm.ir.Call(call.op, self._args(call), call.attrs, ret_ty=call.ty)

    def _args(self, call: Any) -> list[Any]:
        if not is_pure(call):
            raise Refused(f"{call.op} is called")
        if str(call.op.name) in OF_BITS:
            return [
                _narrowed(str(a.ty.dtype), self._wide_value(a)) if _is_narrow(a) else self._plain(a) for a in call.args
            ]
        return [self._wide_value(arg) if _is_narrow(arg) else self._plain(arg) for arg in call.args]

    def _wide_value(self, value: Any) -> Any:
        """A narrow one in float32."""
        dtype = str(value.ty.dtype)
        if isinstance(value, tvm.ir.TensorLoad):
            wide, place = self._wide.get(value.source), list(map(self._plain, value.indices))
            loaded = tirx.BufferLoad(value.source if wide is None else wide, place)
            return loaded if wide is not None else tirx.Cast(_WIDE, loaded)
        if isinstance(value, tirx.FloatImm):
            return tirx.FloatImm(_WIDE, value.value)
        if isinstance(value, tirx.Cast):
            return self._of_cast(dtype, value.value)
        if isinstance(value, _ARITHMETIC):
            return type(value)(self._wide_value(value.a), self._wide_value(value.b))
        if isinstance(value, tirx.Select):
            return tirx.Select(
                self._plain(value.condition), *map(self._wide_value, (value.true_value, value.false_value))
            )
        if isinstance(value, tirx.Let):
            return tirx.Let(value.var, self._plain(value.value), self._wide_value(value.body))
        if is_rounding(value):
            return _rounded_once(dtype, self._wide_value(value.args[0]))
        if isinstance(value, tvm.ir.Call) and str(getattr(value.op, "name", "")) in OF_BITS:
            return tirx.Cast(_WIDE, tvm.ir.Call(value.op, self._args(value), value.attrs, ret_ty=value.ty))
        if isinstance(value, tvm.ir.Call):
            return tvm.ir.Call(value.op, self._args(value), value.attrs, ret_ty=tvm.ir.PrimType(_WIDE))
        if isinstance(value, tvm.ir.Var):
            return tirx.Cast(_WIDE, value)
        raise Refused(f"a {type(value).__name__} of {dtype}")

    def _of_cast(self, dtype: str, value: Any) -> Any:
        if isinstance(value, tvm.ir.Var) and value in self._named:
            return value
        if _is_narrow(value):
            wide = self._wide_value(value)
            return wide if str(value.ty.dtype) == dtype else _rounded_once(dtype, wide)
        own = str(value.ty.dtype)
        wide = self._plain(value)
        if own == _WIDE:
            return _rounded_once(dtype, wide)
        if own.startswith("float"):
            return tirx.Cast(_WIDE, tirx.Cast(dtype, wide))
        made = tirx.Cast(_WIDE, wide)
        return made if own in _HELD and not dtype.startswith("float8") else rounded(dtype, made)


def _rounded_once(dtype: str, value: Any) -> Any:
    """``value`` rounded, if it is not yet."""
    is_done = _is_of(dtype, value) or _is_rounded_to(dtype, value) or isinstance(value, tirx.FloatImm)
    return value if is_done else rounded(dtype, value)


def _narrowed(dtype: str, value: Any) -> Any:
    """``value`` as it is stored."""
    value = value.args[0] if _is_rounded_to(dtype, value) else value
    return value.value if _is_of(dtype, value) else tirx.Cast(dtype, value)


def _is_rounded_to(dtype: str, value: Any) -> bool:
    return is_rounding(value) and bool(rounded(dtype, value.args[0]).op.same_as(value.op))


def _is_of(dtype: str, value: Any) -> bool:
    """It is read from what is narrow."""
    return isinstance(value, tirx.Cast) and str(value.value.ty.dtype) == dtype
