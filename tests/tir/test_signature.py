"""PrimFuncs are read as they are, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from tir.helpers import legal, understood
from tvm import relax, tirx
from tvm.script import tirx as T

from eqsat_layout.maps import IndexMap
from eqsat_layout.tir.access_maps import view_map
from eqsat_layout.tir.affine import Affine
from eqsat_layout.tir.computation import IterKind, Opaque, Role
from eqsat_layout.tir.signature import analyse, same_computation

op = relax.op
NCHW = (1, 32, 8, 8)


def test_a_convolution_is_a_pad_and_a_contraction() -> None:
    conv = understood(legal(lambda x, w: op.nn.conv2d(x, w, padding=(1, 1)), NCHW, (16, 32, 3, 3)))
    assert [b.role for b in conv.buffers] == [Role.OPERAND, Role.OPERAND, Role.RESULT, Role.INTERNAL]
    assert (conv.operands, conv.results, conv.internal) == ((0, 1), (2,), (3,))
    pad, body = conv.blocks
    assert (pad.is_guarded, pad.is_contraction, body.is_contraction) == (True, False, True)
    assert [i.kind for i in body.iters] == [IterKind.SPATIAL] * 4 + [IterKind.REDUCE] * 3
    assert str(body.reads[0].indices[2]) == str(Affine(body.reads[0].indices[2].terms))
    assert conv.is_contraction
    assert conv.flops == 2 * 16 * 8 * 8 * 32 * 9


@pytest.mark.parametrize(
    ("build", "shapes", "is_contraction"),
    [
        (lambda x, y: op.matmul(x, y), [("n", 4, 8), ("n", 8, 6)], True),
        (lambda x, w: op.nn.conv2d(x, w, groups=32), [NCHW, (32, 1, 3, 3)], True),
        (lambda x: op.mean(x, [2, 3]), [NCHW], False),
        (lambda x: op.nn.softmax(x), [(4, 8)], False),
        (lambda x, g: op.nn.layer_norm(x, g, g, [-1]), [(4, 8), (8,)], False),
        (lambda x: op.nn.max_pool2d(x, (2, 2)), [NCHW], False),
    ],
)
def test_contractions_reduce_over_what_indexes_two_buffers(build: Any, shapes: Any, is_contraction: bool) -> None:
    assert understood(legal(build, *shapes)).is_contraction is is_contraction


def test_flops_count_arithmetic_on_data() -> None:
    assert understood(legal(lambda x, y: op.add(x, y), (4, 8), (8,))).flops == 32
    assert understood(legal(lambda x: op.permute_dims(x, [1, 0]), (4, 8))).flops == 0
    assert understood(legal(lambda x, y: op.concat([x, y], 1), (4, 8), (4, 8))).flops == 0
    assert understood(legal(lambda x: op.exp(x), ("n", 8))).flops == 24 * 64 * 8
    assert understood(legal(lambda x: op.floor(x), (4, 8))).flops == 32
    assert understood(legal(lambda x, y: op.divide(x, y), (4, 8), (4, 8))).flops == 16 * 32
    assert understood(legal(lambda x, y: op.multiply(x, y), ((4, 8), "int32"), ((4, 8), "int32"))).flops == 32


def test_flops_count_what_is_worked_out_once_where_it_varies() -> None:
    norm = understood(legal(lambda x, g, b: op.nn.layer_norm(x, g, b, axes=-1), (64, 256), (256,), (256,)))
    assert norm.flops < 15 * 64 * 256, "a row has one reciprocal of its root, not each of its elements"
    cubic = legal(lambda x: op.image.resize2d(x, (8, 8), method="cubic", layout="NHWC"), (1, 4, 4, 64))
    assert understood(cubic).flops < 100 * 8 * 8 * 64, (
        "weights occur a hundred times, and are the same for all channels"
    )


def test_results_are_what_is_written() -> None:
    split = understood(legal(lambda x: op.split(x, 2, 1), NCHW))
    assert (split.operands, split.results) == ((0,), (1, 2))


@pytest.mark.parametrize(
    ("build", "shape", "wanted"),
    [
        (lambda x: op.permute_dims(x, [0, 2, 3, 1]), NCHW, IndexMap.permutation(NCHW, (0, 2, 3, 1))),
        (lambda x: op.reshape(x, (4, 8, 64)), NCHW, IndexMap.reshape(NCHW, (4, 8, 64))),
        (lambda x: op.reshape(x, (2048,)), NCHW, IndexMap.reshape(NCHW, (2048,))),
        (lambda x: op.expand_dims(x, [0, 2]), (4, 8), IndexMap.reshape((4, 8), (1, 4, 1, 8))),
        (lambda x: op.squeeze(x, [0]), (1, 4, 8), IndexMap.reshape((1, 4, 8), (4, 8))),
        (lambda x: op.flatten(x), ("n", 4, 8), None),
        (lambda x: op.reshape(x, (x.ty.shape[0], 32)), ("n", 4, 8), IndexMap.reshape(("n", 4, 8), ("n", 32))),
        (lambda x: op.reshape(x, (x.ty.shape[0] * 4, 8)), ("n", 4, 8), IndexMap.reshape(("n", 4, 8), ("n*4", 8))),
        (
            lambda x: op.layout_transform(x, lambda n, c, h, w: (n, c // 4, h, w, c % 4)),
            NCHW,
            IndexMap.make(NCHW, [[], [(1, 4, 8)], [(2, 1, 8)], [(3, 1, 8)], [(1, 1, 4)]]),
        ),
        (lambda x: op.reshape(x, (3, 2)), (2, 3), None),
        (lambda x: op.flip(x, 0), (4, 8), None),
        (lambda x: op.strided_slice(x, [0], [1], [3]), (4, 8), None),
        (lambda x: op.broadcast_to(x, (4, 8)), (8,), None),
        (lambda x: op.tile(x, (2, 1)), (4, 8), None),
        (lambda x: op.nn.relu(x), (4, 8), None),
        (lambda x: op.astype(x, "float16"), (4, 8), None),
        (lambda x: op.layout_transform(x, lambda i: ((i + 3) // 5, (i + 3) % 5)), (8,), None),
    ],
)
def test_copies_have_a_view_map(build: Any, shape: Any, wanted: IndexMap | None) -> None:
    func = legal(build, shape)
    if wanted is None and isinstance(shape[0], str):
        wanted = IndexMap.make(shape, [[(0, 1, "n"), (1, 1, 4), (2, 1, 8)]])
    assert view_map(understood(func)) == wanted


def test_data_dependent_indices_are_opaque() -> None:
    take = understood(legal(lambda x, i: op.take(x, i, 1), (4, 8), ((3,), "int64")))
    (index,) = [i for r in take.blocks[0].reads for i in r.indices if isinstance(i, Opaque)]
    assert index.iters == (1,)


# ---- functions that are not understood ----


@T.prim_func(s_tir=True)
def scan(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")) -> None:
    for i in range(8):
        with T.sblock("b"):
            v = T.axis.spatial(8, i)
            b[v] = T.if_then_else(v > 0, b[v - 1], T.float32(0)) + a[v]


@T.prim_func(s_tir=True)
def in_place(a: T.Buffer((8,), "float32")) -> None:
    for i in range(8):
        with T.sblock("a"):
            v = T.axis.spatial(8, i)
            a[v] = a[v] + T.float32(1)


@T.prim_func(s_tir=True)
def last_wins(a: T.Buffer((8,), "float32"), b: T.Buffer((4,), "float32")) -> None:
    for i in range(8):
        with T.sblock("b"):
            v = T.axis.spatial(8, i)
            b[v // 2] = a[v]


@T.prim_func(s_tir=True)
def scatter(a: T.Buffer((8,), "float32"), i: T.Buffer((8,), "int32"), b: T.Buffer((8,), "float32")) -> None:
    for k in range(8):
        with T.sblock("b"):
            v = T.axis.spatial(8, k)
            b[i[v]] = a[v]


@T.prim_func(s_tir=True)
def scheduled(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")) -> None:
    for i in T.parallel(8):
        with T.sblock("b"):
            v = T.axis.spatial(8, i)
            b[v] = a[v]


@T.prim_func(s_tir=True)
def calls_out(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")) -> None:
    for i in range(8):
        with T.sblock("b"):
            v = T.axis.spatial(8, i)
            b[v] = T.call_extern("float32", "anything", a[v])


@T.prim_func(s_tir=True)
def branches(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")) -> None:
    for i in range(8):
        with T.sblock("b"):
            v = T.axis.spatial(8, i)
            if v < 4:
                b[v] = a[v]


@T.prim_func(s_tir=True)
def partial_cover(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")) -> None:
    for i in range(4):
        with T.sblock("b"):
            v = T.axis.spatial(8, i)
            b[v] = a[v]


@T.prim_func(s_tir=True)
def swapped_reductions(a: T.Buffer((8, 4), "float32"), b: T.Buffer((1,), "float32")) -> None:
    for j, i in T.grid(4, 8):
        with T.sblock("b"):
            v = T.axis.spatial(1, 0)
            vi = T.axis.reduce(8, i)
            vj = T.axis.reduce(4, j)
            with T.init():
                b[v] = T.float32(0)
            b[v] = b[v] + a[vi, vj]


@T.prim_func
def no_blocks(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")) -> None:
    for i in range(8):
        b[i] = a[i]


@pytest.mark.parametrize(
    "func",
    [
        scan,
        in_place,
        last_wins,
        scatter,
        scheduled,
        calls_out,
        branches,
        partial_cover,
        swapped_reductions,
        no_blocks,
    ],
    ids=lambda f: str(f.attrs["global_symbol"]) if "global_symbol" in f.attrs else "func",
)
def test_odd_functions_are_not_understood(func: Any) -> None:
    assert analyse(func) is None


# ---- sameness ----

SAME = [
    (lambda x: op.sum(x, [1]), (4, 8, 2), lambda x: op.sum(x, [-2]), True),
    (lambda x: op.sum(x, [1]), (4, 8, 4), lambda x: op.sum(x, [2]), False),
    (lambda x: op.sum(x, [1]), (4, 8), lambda x: op.max(x, [1]), False),
    (lambda x: op.sum(x, [1]), (4, 8), lambda x: op.mean(x, [1]), False),
    (lambda x: op.nn.softmax(x, 1), (4, 4), lambda x: op.nn.softmax(x, -1), True),
    (lambda x: op.nn.softmax(x, 1), (4, 4), lambda x: op.nn.softmax(x, 0), False),
    (lambda x: op.nn.relu(x), (4, 4), lambda x: op.nn.leakyrelu(x), False),
    (lambda x: op.nn.leakyrelu(x, 0.1), (4, 4), lambda x: op.nn.leakyrelu(x, 0.2), False),
    (lambda x: op.permute_dims(x, [1, 0]), (4, 4), lambda x: op.permute_dims(x, [0, 1]), False),
    (lambda x: op.sum(x, [1], keepdims=True), (4, 8), lambda x: op.sum(x, [1]), False),
    (lambda x: op.astype(x, "float16"), (4, 8), lambda x: op.astype(x, "int32"), False),
]


@pytest.mark.parametrize(("left", "shape", "right", "same"), SAME)
def test_sameness_is_of_what_is_computed(left: Any, shape: Any, right: Any, same: bool) -> None:
    assert same_computation(legal(left, shape), legal(right, shape)) is same


def test_sameness_does_not_see_names_or_spatial_loop_order() -> None:
    @T.prim_func(s_tir=True)
    def swapped(p: T.Buffer((4, 8), "float32"), q: T.Buffer((4, 8), "float32")) -> None:
        for j, i in T.grid(T.int64(8), T.int64(4)):
            with T.sblock("anything"):
                vj, vi = T.axis.remap("SS", [j, i])
                q[vi, vj] = T.max(p[vi, vj], T.float32(0))

    assert same_computation(swapped, legal(lambda x: op.nn.relu(x), (4, 8)))


def difference(first: str, second: str, dtype: str) -> Any:
    @T.prim_func(s_tir=True)
    def func(p: T.Buffer((4,), dtype), q: T.Buffer((4,), dtype), r: T.Buffer((4,), dtype)) -> None:
        for i in range(4):
            with T.sblock("r"):
                v = T.axis.spatial(4, i)
                r[v] = p[v] - q[v]

    p, q, r = func.params
    params = {"p": p, "q": q}
    return tirx.PrimFunc([params[first], params[second], r], func.body, func.ret_type, func.attrs)


def test_sameness_sees_operand_order_and_dtypes() -> None:
    assert same_computation(difference("p", "q", "float32"), difference("p", "q", "float32"))
    assert not same_computation(difference("p", "q", "float32"), difference("q", "p", "float32"))
    assert not same_computation(difference("p", "q", "float32"), difference("p", "q", "float16"))
