"""Steps of random programs: kernels that no op has.

In: the function that is written, and a static value. Out: what ``ops.py`` says of steps. Sums over lanes of narrow
integers, which code generators make instructions of their own of; and loops with predicates, states, several results
and indices the other way round.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax import op as R

from eqsat_layout.soundness.programs.writer import FunctionWriter, Step, dtype_of, is_static, shape_of

_NARROW: Final = ("int8", "uint8", "int16", "uint16")
_SUMS: Final = (*_NARROW, "int32", "uint32", "int64", "uint64")
_LANES: Final = (16, 16, 8, 32, 64, 4, 3, 15, 33, 96)
_ROWS: Final = (1, 1, 2, 3, 9)
_SUMS_OF_ONE: Final = 4
_WIDE: Final = 1000
"""Wider integers are kept below it: what wraps around in TVM's own loops of them is undefined."""


def kernel(w: FunctionWriter, x: Any) -> Any:
    """One of both kinds, of the value or of another one, which is exact."""
    fitting = [value for value in (*w.values, x) if _fits(w, value)]
    return w.choices.choice((sums_of_lanes, odd_loops))(w, fitting[-1]) if fitting else None


def _fits(w: FunctionWriter, x: Any) -> bool:
    return is_static(x) and 0 not in shape_of(x) and dtype_of(x) != "bool" and not w.known(x).is_rough


def sums_of_lanes(w: FunctionWriter, x: Any) -> Any:
    """Rows of narrow integers, all values of which occur, and of constants, added up in types that may be wider."""
    dtype = w.choices.weighted({"uint8": 4, "int8": 3, "int16": 2, "uint16": 1})
    rows, lanes = w.choices.choice(_ROWS), w.choices.choice(_LANES)
    data = _bytes_of(w, x, dtype, (rows, lanes))
    return [_sum_of_lanes(w, data) for _ in range(_SUMS_OF_ONE)]


def _sum_of_lanes(w: FunctionWriter, data: Any) -> Any:
    choices, dtype, (rows, lanes) = w.choices, dtype_of(data), shape_of(data)
    bits = np.iinfo(dtype).bits
    wide = "int32" if choices.chance(70) else choices.choice([d for d in _SUMS if np.iinfo(d).bits >= bits])
    other = f"{choices.choice(('int', 'uint'))}{bits}"
    shape = (rows, lanes) if choices.chance(50) else (1, lanes)
    rng, ends = np.random.default_rng(choices.below(1 << 16)), np.iinfo(other)
    constant = relax.const(rng.integers(ends.min, ends.max, shape, other, endpoint=True))
    made = choices.choice((_product, _product, _product, _distance, _greater, _largest, _average))

    is_read = choices.chance(50)

    def summed(read: te.Tensor, weight: te.Tensor) -> te.Tensor:
        lane = te.reduce_axis((0, lanes), "lane")

        def element(row: Any) -> Any:
            pair = read(row, lane), weight(row if shape[0] > 1 else 0, lane)
            reduce = te.max if made is _largest else te.sum
            return reduce(made(*pair, wide), axis=lane)

        total = te.compute((rows,), element, name="summed")
        return te.compute((rows,), lambda row: total(row) + tirx.const(1, wide), name="after") if is_read else total

    operands = [te.placeholder((rows, lanes), dtype, name="data"), te.placeholder(shape, other, name="weight")]
    func = te.create_prim_func([*operands, summed(*operands)]).without_attr("global_symbol")
    variable = w.module.add(func, w.module.fresh("sums"))
    return w.emit(relax.call_tir(variable, [data, constant], out_ty=relax.TensorType((rows,), wide)), grows=4)


def _product(a: Any, b: Any, wide: str) -> Any:
    return a.astype(wide) * b.astype(wide)


def _distance(a: Any, b: Any, wide: str) -> Any:
    return tirx.Max(a, b.astype(a.ty.dtype)).astype(wide) - tirx.Min(a, b.astype(a.ty.dtype)).astype(wide)


def _greater(a: Any, b: Any, wide: str) -> Any:
    return (a > b.astype(a.ty.dtype)).astype(wide)


def _largest(a: Any, _: Any, wide: str) -> Any:
    return a.astype(wide)


def _average(a: Any, b: Any, wide: str) -> Any:
    one = tirx.const(1, wide)
    return (a.astype(wide) + b.astype(wide) + one) >> one


def _bytes_of(w: FunctionWriter, x: Any, dtype: str, shape: tuple[int, int]) -> Any:
    """Elements of the value, from the start again where it ends, times a number by which they wrap around."""
    if dtype_of(x).startswith(("float", "bfloat")):
        finite = w.emit(R.where(w.emit(R.isnan(x)), relax.const(0, dtype_of(x)), x), rough=False)
        x = w.emit(R.astype(w.emit(R.clip(finite, -100, 100), rough=False), "int32"), rough=False)
    flat = w.emit(R.reshape(x, (math.prod(shape_of(x)),)), rough=False)
    places = np.arange(math.prod(shape)) % math.prod(shape_of(x))
    taken = w.emit(R.reshape(w.emit(R.take(flat, relax.const(places), axis=0)), shape))
    factor = np.arange(1, 1 + math.prod(shape)).reshape(shape) * 37 % 251
    return w.emit(R.multiply(w.emit(R.astype(taken, dtype)), relax.const(factor.astype(dtype))))


def odd_loops(w: FunctionWriter, x: Any) -> Any:
    """Loops over two axes, in TVMScript."""
    dtype = dtype_of(x)
    if dtype.startswith("bfloat"):
        return None
    if dtype not in _NARROW and "int" in dtype:
        x = w.emit(R.clip(x, 0 if dtype.startswith("u") else -_WIDE, _WIDE))
    rows, *others = shape_of(x) or (1,)
    columns = math.prod(others)
    x = w.emit(R.reshape(x, (rows, columns)), rough=False)
    name = w.choices.choice(tuple(BODIES))
    results, body = BODIES[name]
    sizes = {"n": rows, "m": columns}
    types = [relax.TensorType([sizes[e] for e in axes], own or dtype) for axes, own in results]
    buffers = [f"r{i}: T.Buffer({tuple(map(int, ty.shape.values))}, '{ty.dtype}')" for i, ty in enumerate(types)]
    text = _SCRIPT.format(
        buffers=", ".join(buffers), body=body.format(d=dtype, last=columns - 1, **sizes), d=dtype, **sizes
    )
    variable = w.module.add(tvm.script.from_source(text), w.module.fresh(name))
    ty = types if len(types) > 1 else types[0]
    return w.parts(w.emit(relax.call_tir(variable, [w.tame(x)], out_ty=ty), grows=2))


_SCRIPT: Final = """# from tvm.script import tirx as T
@T.prim_func(private=True, s_tir=True)
def loops(a: T.Buffer(({n}, {m}), "{d}"), {buffers}):
{body}
"""
_GRID: Final = """    for i, j in T.grid({n}, {m}):
        with T.sblock("made"):
            i_, j_ = T.axis.remap("SS", [i, j])
"""
_ROW: Final = """    for i in range({n}):
        with T.sblock("made"):
            i_ = T.axis.spatial({n}, i)
"""
_ROWS_OF: Final = """    for i, k in T.grid({n}, {m}):
        with T.sblock("reduced"):
            i_, k_ = T.axis.remap("SR", [i, k])
            with T.init():
"""
BODIES: Final = {
    "turned": ([("nm", "")], _GRID + "            r0[i_, {last} - j_] = a[{n} - 1 - i_, (j_ + i_) % {m}]"),
    "named": (
        [("nm", "")],
        _GRID + "            r0[i_, j_] = a[T.Select(a[i_, 0] > T.Cast('{d}', 0), {n} - 1, 0), j_] - a[i_, j_]",
    ),
    "predicate": (
        [("nm", "")],
        """    for i, jo, ji in T.grid({n}, ({m} + 2) // 3, 3):
        with T.sblock("made"):
            T.where(jo * 3 + ji < {m})
            i_ = T.axis.spatial({n}, i)
            j_ = T.axis.spatial({m}, jo * 3 + ji)
            r0[i_, j_] = a[i_, j_] + T.Cast('{d}', 1)""",
    ),
    "pair": (
        [("n", ""), ("n", "")],
        _ROWS_OF
        + """                r0[i_] = T.min_value("{d}")
                r1[i_] = T.Cast('{d}', 0)
            r0[i_] = T.max(r0[i_], a[i_, k_])
            r1[i_] = r1[i_] + a[i_, {last} - k_]""",
    ),
    "place": (
        [("n", ""), ("n", "int32")],
        _ROWS_OF
        + """                r0[i_] = T.min_value("{d}")
                r1[i_] = -1
            best: T.let[T.{d}] = T.Select(r0[i_] >= a[i_, k_], r0[i_], a[i_, k_])
            where: T.let[T.int32] = T.Select(r0[i_] >= a[i_, k_], r1[i_], T.Cast("int32", k_))
            r0[i_] = best
            r1[i_] = where""",
    ),
    "alternating": (
        [("n", "")],
        _ROWS_OF + "                r0[i_] = T.Cast('{d}', 3)\n            r0[i_] = a[i_, k_] - r0[i_]",
    ),
    "scan": (
        [("nm", "")],
        _ROW
        + """            r0[i_, 0] = a[i_, 0]
            for j in range({last}):
                r0[i_, j + 1] = r0[i_, j] + a[i_, j + 1]""",
    ),
    "local": (
        [("nm", "")],
        _ROW
        + """            t = T.sblock_alloc_buffer(({m},), "{d}")
            for j in range({m}):
                t[j] = a[i_, {last} - j] + T.Cast('{d}', 1)
            for j in range({m}):
                r0[i_, j] = t[j] - t[{last} - j]""",
    ),
    "while_below": (
        [("nm", "")],
        _GRID
        + """            t = T.sblock_alloc_buffer((1,), "int32", scope="local")
            t[0] = 0
            r0[i_, j_] = T.Cast('{d}', 0)
            while t[0] < T.Cast("int32", j_) + 1:
                r0[i_, j_] = r0[i_, j_] + a[i_, t[0]]
                t[0] = t[0] + 1""",
    ),
    "triangle": (
        [("nm", "")],
        """    for i, j, k in T.grid({n}, {m}, {m}):
        with T.sblock("made"):
            i_, j_, k_ = T.axis.remap("SSR", [i, j, k])
            with T.init():
                r0[i_, j_] = T.Cast('{d}', 0)
            if k_ <= j_:
                r0[i_, j_] = r0[i_, j_] + a[i_, k_]""",
    ),
    "updated": (
        [("nm", ""), ("n", "")],
        _GRID
        + "            r0[i_, j_] = a[i_, j_]\n"
        + _GRID.replace("made", "again")
        + "            if a[i_, j_] > T.Cast('{d}', 1):\n                r0[i_, j_] = r0[i_, j_] - T.Cast('{d}', 1)\n"
        + _ROWS_OF
        + "                r1[i_] = T.Cast('{d}', 0)\n            r1[i_] = r1[i_] + r0[i_, k_]",
    ),
}  # fmt: skip
"""Of each the axes and type of its results, the operand's unless one is named, and its loops."""

KERNEL_KINDS: dict[Step, int] = {kernel: 0}
