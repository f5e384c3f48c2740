"""One function or one op in other layouts: the same numbers, and clear errors for what can't be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from programs import constant
from tir.helpers import legal
from tvm import relax, tirx
from tvm.script import tirx as T

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import IndexMap, index_map_from_names
from eqsat_layout.planning.transform import read_layout, transform_layout

op = relax.op
NCHW = (1, 8, 4, 6)


def blocked(n: Any, c: Any, h: Any, w: Any) -> tuple[Any, ...]:
    return (n, c // 4, h, w, c % 4)


def shapes(func: Any) -> list[tuple[int, ...]]:
    return [tuple(int(e) for e in p.ty.shape) for p in func.params]


def nchw4c() -> IndexMap:
    index_map = index_map_from_names("NCHW", "NCHW4c", NCHW)
    assert index_map is not None
    return index_map


@pytest.mark.parametrize("layout", [blocked, ("NCHW", "NCHW4c"), nchw4c(), tirx.IndexMap.from_func(blocked)])
def test_the_ways_to_say_a_layout(layout: Any) -> None:
    assert read_layout(layout, NCHW) == nchw4c()
    func = legal(lambda x, b: op.add(x, b), NCHW, (1, 8, 1, 1))
    assert shapes(transform_layout(func, result=layout)) == [(1, 2, 4, 6, 4), (1, 2, 1, 1, 4), (1, 2, 4, 6, 4)]


def test_from_an_operand_and_by_position() -> None:
    func = legal(lambda x: op.sum(x, [2]), NCHW)
    for operands in (("NCHW", "NHWC"), [("NCHW", "NHWC")], {0: ("NCHW", "NHWC")}):
        assert shapes(transform_layout(func, operands=operands)) == [(1, 4, 6, 8), (1, 6, 8)]


def test_a_convolution_in_given_layouts() -> None:
    func = legal(lambda x, w: op.nn.conv2d(x, w, padding=1), NCHW, (8, 8, 3, 3))
    laid = transform_layout(func, operands=[blocked, ("OIHW", "OIHW4i4o")], result=blocked)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype("float32") for s in shapes(func)[:2])
    weights = index_map_from_names("OIHW", "OIHW4i4o", w.shape)
    assert weights is not None
    (wanted,) = run(func, x, w)
    (found,) = run(laid, nchw4c().apply(x), weights.apply(w))
    np.testing.assert_array_equal(found, nchw4c().apply(wanted))


def run(func: Any, *operands: Any) -> list[Any]:
    library = tvm.compile(tvm.IRModule({"f": func.with_attr("global_symbol", "f")}), "llvm")
    results = [tvm.runtime.tensor(np.zeros(s, "float32")) for s in shapes(func)[len(operands) :]]
    library["f"](*map(tvm.runtime.tensor, operands), *results)
    return [r.numpy() for r in results]


def module(body: Callable[[Any, Any], Any], shape: tuple[int, ...] = NCHW) -> Any:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(body(builder, x)))
    return builder.finalize()


def value(mod: Any, x: Any) -> Any:
    return relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()


def called(mod: Any) -> list[str]:
    calls = [b.value for block in mod["main"].body.blocks for b in block.bindings if isinstance(b.value, tvm.ir.Call)]
    return [str(c.args[0].name_hint if c.op.name == "relax.call_tir" else c.op.name) for c in calls]


def test_a_relax_op_stays_one_where_it_says_it() -> None:
    nhwc = ("NCHW", "NHWC")
    before = module(lambda b, x: op.sum(x, [2]))
    after = module(lambda b, x: transform_layout(op.sum(x, [2]), operands=nhwc))
    assert called(after) == ["relax.permute_dims", "relax.sum"]
    x = np.random.default_rng(0).standard_normal(NCHW).astype("float32")
    np.testing.assert_allclose(value(after, x), value(before, x).transpose(0, 2, 1), rtol=1e-6)


def test_a_relax_op_becomes_a_primfunc_where_none_says_it() -> None:
    def softmax(builder: Any, x: Any) -> Any:
        return transform_layout(op.nn.softmax(x, 1), result=blocked, builder=builder)

    after = module(softmax)
    assert called(after) == ["relax.layout_transform", "softmax_relaid"]
    x = np.random.default_rng(0).standard_normal(NCHW).astype("float32")
    wanted = value(module(lambda b, x: op.nn.softmax(x, 1)), x)
    np.testing.assert_allclose(value(after, x), nchw4c().apply(wanted), rtol=1e-6)
    x = relax.Var("x", relax.TensorType(NCHW, "float32"))
    with pytest.raises(LayoutError, match=r"no Relax op says relax\.nn\.softmax in these layouts"):
        transform_layout(op.nn.softmax(x, 1), result=blocked)


def test_a_call_tir() -> None:
    func = legal(lambda x, b: op.add(x, b), NCHW, (1, 8, 1, 1))
    bias = constant(1, 8, 1, 1)

    def plain(builder: Any, x: Any) -> Any:
        return relax.call_tir(builder.add_func(func, "bias"), (x, bias), relax.TensorType(NCHW, "float32"))

    before = module(plain)
    after = module(lambda b, x: transform_layout(plain(b, x), result=blocked, builder=b))
    assert called(after)[-1] == "bias_relaid"
    x = np.random.default_rng(0).standard_normal(NCHW).astype("float32")
    np.testing.assert_array_equal(value(after, x), nchw4c().apply(value(before, x)))
    with pytest.raises(LayoutError, match="only with the builder"):
        transform_layout(plain(relax.BlockBuilder(), relax.Var("x", relax.TensorType(NCHW, "float32"))), result=blocked)


@pytest.mark.parametrize(
    ("layouts", "complaint"),
    [
        ({"result": lambda i, j: (j, i)}, r"result 0 .*does not take 4 indices"),
        ({"result": ("NCH", "NHC")}, "3 axes"),
        ({"result": ("NCHW", "NCHW3c")}, r"NCHW to NCHW3c is no bijection"),
        ({"result": lambda n, c, h, w: (n, (c + 3) % 8, h, w)}, "no bijection"),
        ({"result": lambda n, c, h, w: (n, h, w)}, "no bijection"),
        ({"result": IndexMap.identity((8, 4))}, r"is for shape \(8, 4\)"),
        ({"operands": [None, None, blocked]}, "operand 2, but there are 2"),
        ({"operands": "NHWC"}, "expected a layout"),
        ({"operands": [3]}, "expected an index map"),
        ({"operands": tirx.IndexMap.from_func(lambda i: [i])}, "takes 1 indices"),
    ],
)
def test_layouts_that_can_not_be(layouts: dict[str, Any], complaint: str) -> None:
    func = legal(lambda x, b: op.add(x, b), NCHW, (1, 8, 1, 1))
    with pytest.raises(LayoutError, match=complaint):
        transform_layout(func, **layouts)


def test_what_is_not_understood() -> None:
    @T.prim_func(private=True, s_tir=True)
    def opaque(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")) -> None:  # type: ignore[no-untyped-def]
        T.evaluate(T.call_extern("void", "touch", T.address_of(x[0]), T.address_of(y[0])))

    with pytest.raises(LayoutError, match="the PrimFunc can't be re-laid-out: its TIR is not understood"):
        transform_layout(opaque, result=lambda i: (i // 2, i % 2))
    with pytest.raises(LayoutError, match="expected a PrimFunc or a call"):
        transform_layout(relax.Var("x", relax.TensorType((4,), "float32")), result=lambda i: i)
