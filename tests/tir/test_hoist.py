"""Layout rewrites at the ends of a PrimFunc are lifted out, and together with what is left they compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tir.helpers import legal
from tvm import relax, s_tir, te, topi
from tvm.script import tirx as T

from eqsat_layout.maps import IndexMap, index_map_from_names
from eqsat_layout.soundness.programs.check import unscheduled_library
from eqsat_layout.tir.hoist import PREPROC_ANNOTATION, Hoisted, hoist
from eqsat_layout.tir.signature import analyse

SHAPE = (1, 8, 4, 6)


def nchw4c(shape: tuple[int, ...] = SHAPE) -> IndexMap:
    index_map = index_map_from_names("NCHW", "NCHW4c", shape)
    assert index_map is not None
    return index_map


def pack(x: Any, name: str = "pack") -> Any:
    n, c, h, w = (int(e) for e in x.shape)
    return te.compute((n, c // 4, h, w, 4), lambda n, C, h, w, c: x[n, C * 4 + c, h, w], name)


def unpack(y: Any, name: str = "unpack") -> Any:
    n, c, h, w, b = (int(e) for e in y.shape)
    return te.compute((n, c * b, h, w), lambda n, c, h, w: y[n, c // 4, h, w, c % 4], name)


def conv4c(x: Any, w: Any) -> Any:
    """3x3, padded by 1, all in packed layouts."""
    n, c, height, width, _ = (int(e) for e in x.shape)
    halo = topi.nn.pad(x, [0, 0, 1, 1, 0], [0, 0, 1, 1, 0], name="pad_temp")
    axes = [te.reduce_axis((0, e), r) for r, e in zip(("C", "kh", "kw", "c"), (c, 3, 3, 4), strict=True)]
    C, kh, kw, ci = axes
    return te.compute(
        (n, int(w.shape[0]), height, width, 4),
        lambda n, k, h, v, o: te.sum(halo[n, C, h + kh, v + kw, ci] * w[k, C, kh, kw, ci, o], axes),
        "conv",
    )


def placeholder(name: str, *shape: int) -> Any:
    return te.placeholder(shape, "float32", name)


def wrapped_conv() -> Any:
    """The proposal's: a convolution in NCHW4c behind NCHW parameters."""
    x, w = placeholder("x", *SHAPE), placeholder("w", 2, 2, 3, 3, 4, 4)
    return te.create_prim_func([x, w, unpack(conv4c(pack(x), w))])


def lifted(func: Any) -> Hoisted:
    """What is lifted out of ``func``; the parts must compute what it computes."""
    found = hoist(func)
    assert found is not None
    assert hoist(found.func) is None
    assert_same(func, found)
    return found


def assert_same(func: Any, found: Hoisted) -> None:
    library = unscheduled_library({"f0": func, "f1": found.func})
    params = [[int(e) for e in p.ty.shape] for p in func.params]
    inner = [[int(e) for e in p.ty.shape] for p in found.func.params]
    computation = analyse(func)
    count = len(params) - 1 if computation is None else len(computation.operands)
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal(shape).astype("float32") for shape in params[:count]]
    rewritten = [found.pre[i].apply(a, undef=np.nan) if i in found.pre else a for i, a in enumerate(operands)]
    wanted = run(library["f0"], operands, params[count:])
    results = run(library["f1"], rewritten, inner[count:])
    for i, (a, b) in enumerate(zip(wanted, results, strict=True)):
        np.testing.assert_array_equal(a, found.post[i].apply(b) if i in found.post else b)


def run(function: Any, operands: list[Any], shapes: list[list[int]]) -> list[Any]:
    tensors = [tvm.runtime.tensor(a) for a in operands]
    results = [tvm.runtime.tensor(np.full(shape, np.nan, "float32")) for shape in shapes]
    function(*tensors, *results)
    return [r.numpy() for r in results]


def blocks(func: Any) -> list[str]:
    schedule = s_tir.Schedule(func)
    return [str(schedule.get(b).name_hint) for b in schedule.get_child_blocks(schedule.get_sblock("root"))]


def test_a_convolution_with_its_own_packing() -> None:
    found = lifted(wrapped_conv())
    assert found.pre.keys() == {0}
    assert found.pre[0].index_map == nchw4c()
    assert found.post.keys() == {0}
    assert found.post[0].index_map == nchw4c().inverse()
    assert blocks(found.func) == ["pad_temp", "conv"]  # the halo stays
    assert hoist(found.func) is None


def test_rewrites_one_after_the_other_are_lifted_as_one() -> None:
    x = placeholder("x", 1, 4, 6, 8)
    turned = te.compute(SHAPE, lambda n, c, h, w: x[n, h, w, c], "turn")
    back = unpack(topi.exp(pack(turned)))
    z = te.compute((1, 4, 6, 8), lambda n, h, w, c: back[n, c, h, w], "turn_back")
    found = lifted(te.create_prim_func([x, z]))
    assert blocks(found.func) == ["compute"]
    to_nchw = IndexMap.permutation((1, 4, 6, 8), [0, 3, 1, 2])
    whole = nchw4c().after(to_nchw)
    assert whole is not None
    assert found.pre[0].index_map == whole
    assert found.post[0].index_map == whole.inverse()


def test_a_crop_is_lifted_and_a_halo_is_not() -> None:
    x = placeholder("x", 10, 8)
    inner = te.compute((8, 8), lambda i, j: x[i + 1, j], "crop")
    halo = topi.nn.pad(inner, [1, 0], [1, 0], name="halo")
    y = te.compute((8, 8), lambda i, j: halo[i, j] + halo[i + 2, j], "stencil")
    found = lifted(te.create_prim_func([x, y]))
    assert found.pre[0].crop == ((1, 1), (0, 0))
    assert blocks(found.func) == ["halo", "stencil"]
    annotated = lifted(marked(found.func, "halo"))
    assert annotated.pre[0].pad == ((1, 1), (0, 0))
    assert annotated.pre[0].fill == 0.0
    assert blocks(annotated.func) == ["stencil"]


def marked(func: Any, block: str) -> Any:
    schedule = s_tir.Schedule(func)
    schedule.annotate(schedule.get_sblock(block), PREPROC_ANNOTATION, True)
    return schedule.mod["main"]


def test_an_operand_with_another_reader_stays() -> None:
    x = placeholder("x", *SHAPE)
    y = unpack(topi.exp(pack(x)))
    total = te.compute(SHAPE, lambda *i: y[i] + x[i], "total")
    assert hoist(te.create_prim_func([x, total])) is None


def test_a_result_that_is_read_again_stays() -> None:
    x = placeholder("x", *SHAPE)
    y = unpack(topi.exp(pack(x)))
    z = te.compute(SHAPE, lambda *i: y[i] * 2, "double")
    found = lifted(te.create_prim_func([x, y, z]))
    assert found.pre.keys() == {0}
    assert not found.post


def test_each_of_several_results() -> None:
    x = placeholder("x", *SHAPE)
    packed = pack(x)
    y, z = unpack(topi.exp(packed), "first"), topi.transpose(unpack(topi.tanh(packed), "second"), [0, 2, 3, 1])
    found = lifted(te.create_prim_func([x, y, z]))
    assert found.post[0].index_map == nchw4c().inverse()
    assert found.post[1].result_shape == (1, 4, 6, 8)
    assert len(blocks(found.func)) == 2


def test_the_second_operand_alone() -> None:
    x, w = placeholder("x", 4, 8), placeholder("w", 6, 8)
    k = te.reduce_axis((0, 8), "k")
    turned = topi.transpose(w, [1, 0])
    y = te.compute((4, 6), lambda i, j: te.sum(x[i, k] * turned[k, j], k), "matmul")
    found = lifted(te.create_prim_func([x, w, y]))
    assert found.pre.keys() == {1}
    assert found.pre[1].index_map == IndexMap.permutation((6, 8), [1, 0])


@pytest.mark.parametrize(
    "func",
    [
        legal(lambda x: relax.op.permute_dims(x, [1, 0]), (4, 6)),
        legal(lambda x: relax.op.nn.relu(x), (4, 6)),
        legal(lambda x, w: relax.op.nn.conv2d(x, w, padding=1), SHAPE, (8, 8, 3, 3)),
        legal(lambda x, w: relax.op.nn.conv2d(x, w), SHAPE, (8, 8, 1, 1)),  # its pad stage copies
        legal(lambda x: relax.op.nn.softmax(x), (4, 6)),
    ],
    ids=["rewrite", "relu", "conv2d", "pointwise", "softmax"],
)
def test_what_has_no_rewrites_at_its_ends(func: Any) -> None:
    assert hoist(func) is None


def test_a_function_of_rewrites_only_is_one_itself() -> None:
    x = placeholder("x", *SHAPE)
    assert hoist(te.create_prim_func([x, topi.transpose(unpack(pack(x)), [0, 2, 3, 1])])) is None


def test_a_scheduled_core_need_not_be_understood() -> None:
    schedule = s_tir.Schedule(wrapped_conv())
    n, k, *_ = schedule.get_loops(schedule.get_sblock("conv"))
    schedule.parallel(schedule.fuse(n, k))
    schedule.vectorize(schedule.get_loops(schedule.get_sblock("pad_temp"))[-1])
    func = schedule.mod["main"]
    assert analyse(func) is None
    found = lifted(func)
    assert blocks(found.func) == ["pad_temp", "conv"]
    assert found.pre[0].index_map == nchw4c()
    assert found.post[0].index_map == nchw4c().inverse()


def test_a_buffer_that_escapes_stays() -> None:
    @T.prim_func(private=True, s_tir=True)
    def func(x: T.Buffer((4, 8), "float32"), y: T.Buffer((8, 4), "float32")) -> None:  # type: ignore[no-untyped-def]
        turned = T.sblock_alloc_buffer((8, 4), "float32")
        for i, j in T.grid(8, 4):
            with T.sblock("turn"):
                vi, vj = T.axis.remap("SS", [i, j])
                turned[vi, vj] = x[vj, vi]
        for i, j in T.grid(8, 4):
            with T.sblock("use"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.evaluate(T.call_extern("void", "touch", T.address_of(turned[0, 0])))
                y[vi, vj] = turned[vi, vj]

    assert hoist(func) is None


def test_attributes_stay_with_the_core() -> None:
    func = wrapped_conv().with_attr("eqsat_layout.frozen", True)
    assert lifted(func).func.attrs["eqsat_layout.frozen"]


def test_a_function_that_writes_an_operand_is_left_alone() -> None:
    @T.prim_func(private=True, s_tir=True)
    def func(x: T.Buffer((4, 8), "float32"), w: T.Buffer((8, 4), "float32"), y: T.Buffer((8, 4), "float32")) -> None:  # type: ignore[no-untyped-def]
        turned = T.sblock_alloc_buffer((8, 4), "float32")
        for i, j in T.grid(4, 8):
            with T.sblock("touch"):
                vi, vj = T.axis.remap("SS", [i, j])
                x[vi, vj] = T.float32(0)
        for i, j in T.grid(8, 4):
            with T.sblock("turn"):
                vi, vj = T.axis.remap("SS", [i, j])
                turned[vi, vj] = x[vj, vi]
        for i, j in T.grid(8, 4):
            with T.sblock("use"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = turned[vi, vj] + w[vi, vj]

    assert hoist(func) is None


def test_a_size_that_only_the_old_shape_tells() -> None:
    n = te.var("n", "int64")
    x = te.placeholder((n, 4), "float32", "x")
    fused = te.compute((n * 4,), lambda i: x[i // 4, i % 4], "fuse")
    assert hoist(te.create_prim_func([x, topi.exp(fused)])) is None
    turned = te.compute((4, n), lambda i, j: x[j, i], "turn")
    found = hoist(te.create_prim_func([x, topi.exp(turned)]))
    assert found is not None
    assert found.pre[0].index_map == IndexMap.permutation(("n", 4), [1, 0])
