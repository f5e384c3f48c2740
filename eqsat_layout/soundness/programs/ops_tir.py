"""Steps of random programs: calls of hand-written PrimFuncs.

In: the function that is written, and a static float32 value. Out: what ``ops.py`` says of steps. Some are written as
tensor expressions, some as loops.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import tvm
from tvm import relax, te, tirx

from eqsat_layout.soundness.programs.writer import FunctionWriter, Step, shape_of

_LARGEST_MATRIX: Final = 8
"""Rows of one: kernels know the elements of small ones."""


def primfunc(w: FunctionWriter, x: Any) -> Any:
    """A PrimFunc of one operand as a tensor expression, frozen now and then."""
    if not shape_of(x):
        return None
    compute = w.choices.choice((scaled, turned, stencil, weighted_rows, reduced))
    data = te.placeholder(shape_of(x), "float32", name="data")
    made = compute(data)
    func = te.create_prim_func([data, made]).without_attr("global_symbol")
    if w.choices.chance(15):
        func = func.with_attr("eqsat_layout.frozen", True)
    return _called(w, func, compute.__name__, x, [int(e) for e in made.shape])


def scaled(data: te.Tensor) -> te.Tensor:
    """Two blocks, the second of which is not 0 at 0."""
    twice = te.compute(data.shape, lambda *i: data(*i) * tirx.const(2.0, "float32"), name="twice")
    return te.compute(data.shape, lambda *i: twice(*i) + tirx.const(0.5, "float32"), name="scaled")


def turned(data: te.Tensor) -> te.Tensor:
    """The axes the other way round."""
    return te.compute(tuple(data.shape)[::-1], lambda *i: data(*i[::-1]), name="turned")


def stencil(data: te.Tensor) -> te.Tensor:
    """Neighbours on the last axis, nothing beyond the border."""
    last = int(data.shape[-1])

    def element(*index: Any) -> Any:
        *rest, i = index
        left = tirx.if_then_else(i > 0, data(*rest, i - 1), tirx.const(0.0, "float32"))
        right = tirx.if_then_else(i < last - 1, data(*rest, i + 1), tirx.const(0.0, "float32"))
        return data(*rest, i) * tirx.const(0.5, "float32") + left - right

    return te.compute(data.shape, element, name="stencil")


def weighted_rows(data: te.Tensor) -> te.Tensor:
    """The index itself is read."""
    return te.compute(
        data.shape, lambda *i: data(*i) * (i[0] % 3 + i[-1] % 2 + 1).astype("float32"), name="weighted_rows"
    )


def reduced(data: te.Tensor) -> te.Tensor:
    """The sum over the first axis."""
    r = te.reduce_axis((0, data.shape[0]), "r")
    return te.compute(tuple(data.shape)[1:], lambda *i: te.sum(data(r, *i), axis=r), name="reduced")


def products(w: FunctionWriter, x: Any) -> Any:
    """Six results of one kernel and more, products with several small matrices, most of which have zeros."""
    rows, *others = shape_of(x) or (1,)
    if not 1 < rows <= _LARGEST_MATRIX:
        return None
    matrices = [w.constant((rows, rows)) for _ in range(w.choices.between(2, 3))]
    given = [w.tame(x), *(in_halves(matrix, has_zeros=w.choices.chance(60)) for matrix in matrices)]
    read = [w.choices.below(len(given)) for _ in range(w.choices.between(6, 8))]
    operands = [te.placeholder(shape_of(one), "float32", name=f"operand{n}") for n, one in enumerate(given)]
    data = operands[0]

    def result(number: int) -> te.Tensor:
        if number == 0:
            return te.compute(data.shape, lambda *at: data(*at) * tirx.const(0.5, "float32"), name="halved")
        r = te.reduce_axis((0, rows), "r")
        matrix = operands[number]
        return te.compute(data.shape, lambda i, *at: te.sum(matrix(i, r) * data(r, *at), axis=r), name="product")

    func = te.create_prim_func([*operands, *map(result, read)]).without_attr("global_symbol")
    variable = w.module.add(func, w.module.fresh("products"))
    types = [relax.TensorType([rows, *others], "float32") for _ in read]
    return w.parts(w.emit(relax.call_tir(variable, given, out_ty=types), grows=1))


def in_halves(matrix: Any, *, has_zeros: bool) -> Any:
    """A constant of -1, -1/2, 1/2, 1 and perhaps 0: products are exact, so that one that is added as it is multiplied
    is as any other, near the largest number too."""
    numbers = np.clip(np.round(2 * matrix.value.numpy()) / 2, -1, 1)
    return relax.const(np.where((numbers == 0) & (not has_zeros), np.float32(0.5), numbers))


def loops(w: FunctionWriter, x: Any) -> Any:
    """A PrimFunc of two axes as loops in TVMScript: blocks that are not what a tensor expression makes."""
    shape = shape_of(x)
    if len(shape) != 2:
        return None
    rows, columns = shape
    body = w.choices.choice((_PLAIN, _PREFIX, _TILED) if columns % 2 == 0 else (_PLAIN, _PREFIX))
    text = _SCRIPT.format(
        rows=rows, columns=columns, half=columns // 2, body=body.format(**locals(), half=columns // 2)
    )
    func = tvm.script.from_source(text)
    return _called(w, func, "loops", x, [rows, columns])


_SCRIPT = """# from tvm.script import tirx as T
@T.prim_func(private=True, s_tir=True)
def loops(a: T.Buffer(({rows}, {columns}), "float32"), b: T.Buffer(({rows}, {columns}), "float32")):
{body}
"""

_PLAIN = """    for i, j in T.grid({rows}, {columns}):
        with T.sblock("negated"):
            vi, vj = T.axis.remap("SS", [i, j])
            b[vi, vj] = T.float32(1) - a[vi, vj]"""

_PREFIX = """    for i, j in T.grid({rows}, {columns}):
        with T.sblock("prefix"):
            vi, vj = T.axis.remap("SS", [i, j])
            b[vi, vj] = T.if_then_else(vj == 0, a[vi, 0], a[vi, vj] - a[vi, T.max(vj - 1, 0)])"""

_TILED = """    for i, jo, ji in T.grid({rows}, {half}, 2):
        with T.sblock("tiled"):
            vi = T.axis.spatial({rows}, i)
            vj = T.axis.spatial({columns}, jo * 2 + ji)
            b[vi, vj] = a[vi, vj] * T.float32(3)"""


def _called(w: FunctionWriter, func: Any, name: str, x: Any, shape: list[int]) -> Any:
    variable = w.module.add(func, w.module.fresh(name))
    return w.emit(relax.call_tir(variable, [w.tame(x)], out_ty=relax.TensorType(shape, "float32")), grows=1)


TIR_KINDS: dict[Step, int] = {primfunc: 2, loops: 1, products: 2}
