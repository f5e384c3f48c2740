"""The interpreter of TIR beside LLVM, and what it says of undef."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tir.helpers import legal, understood
from tir.poison import padded
from tvm import relax
from tvm.relax import op as R
from tvm.script import tirx as T

from eqsat_layout.maps import UNDEF
from eqsat_layout.soundness.tir_interpreter import InterpreterError, Masked, run_prim_func
from eqsat_layout.soundness.values import lay
from eqsat_layout.tir.flow import backward
from eqsat_layout.tir.rewrite import relayout

WORLDS = 2
IMAGE = (2, 4, 6, 6)
OPS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "relu": (R.nn.relu, [IMAGE]),
    "gelu": (R.nn.gelu, [IMAGE]),
    "erf": (R.erf, [(3, 5)]),
    "power": (R.power, [(3, 5), (3, 5)]),
    "floor_divide": (R.floor_divide, [((3, 5), "int32"), ((3, 5), "int32")]),
    "bias": (R.add, [IMAGE, (4, 1, 1)]),
    "float16": (R.multiply, [((3, 5), "float16"), ((3, 5), "float16")]),
    "logical_and": (R.logical_and, [((3, 5), "bool"), ((3, 5), "bool")]),
    "astype": (lambda x: R.astype(x, "int8"), [(3, 5)]),
    "sum": (lambda x: R.sum(x, axis=[1, 3]), [IMAGE]),
    "max": (lambda x: R.max(x, axis=1, keepdims=True), [IMAGE]),
    "argmax": (lambda x: R.argmax(x, axis=1), [IMAGE]),
    "softmax": (lambda x: R.nn.softmax(x, axis=1), [IMAGE]),
    "layer_norm": (lambda x, g, b: R.nn.layer_norm(x, g, b, axes=[-1]), [(2, 4, 6), (6,), (6,)]),
    "conv2d": (lambda x, w: R.nn.conv2d(x, w, padding=1, strides=2), [IMAGE, (3, 4, 3, 3)]),
    "depthwise": (lambda x, w: R.nn.conv2d(x, w, groups=4), [IMAGE, (4, 1, 3, 3)]),
    "conv2d_transpose": (lambda x, w: R.nn.conv2d_transpose(x, w, strides=2), [IMAGE, (4, 3, 2, 2)]),
    "matmul": (R.matmul, [(2, 3, 4), (4, 5)]),
    "max_pool2d": (lambda x: R.nn.max_pool2d(x, (3, 3), padding=1, strides=2), [IMAGE]),
    "avg_pool2d": (lambda x: R.nn.avg_pool2d(x, (3, 3), padding=1), [IMAGE]),
    "adaptive_avg_pool2d": (lambda x: R.nn.adaptive_avg_pool2d(x, (4, 4)), [IMAGE]),
    "resize2d": (lambda x: R.image.resize2d(x, (9, 9), layout="NCHW", method="linear"), [IMAGE]),
    "concat": (lambda x, y: R.concat([x, y], axis=1), [IMAGE, IMAGE]),
    "split": (lambda x: R.split(x, 2, axis=1), [IMAGE]),
    "pad": (lambda x: R.nn.pad(x, [0, 0, 1, 2]), [(3, 5)]),
    "strided_slice": (lambda x: R.strided_slice(x, [1], [0], [6], [2]), [(3, 6)]),
    "take": (lambda x, i: R.take(x, i, axis=0), [(3, 5), ((4,), "int32")]),
    "where": (R.where, [((3, 5), "bool"), (3, 5), (3, 5)]),
    "one element": (R.nn.relu, [()]),
    "nothing": (R.nn.relu, [(0, 3)]),
}


def arrays(func: Any, count: int, seed: int = 0) -> list[Any]:
    """Operands in several worlds."""
    rng = np.random.default_rng(seed)
    found = []
    for param in func.params[:count]:
        shape, dtype = (WORLDS, *(int(e) for e in param.ty.shape)), str(param.ty.dtype)
        if dtype == "bool" or "int" in dtype:
            found.append(rng.integers(0 if dtype == "bool" else 1, 2 if dtype == "bool" else 3, shape).astype(dtype))
        else:
            found.append(rng.uniform(0.1, 1, shape).astype(dtype))
    return found


def compiled(func: Any, operands: list[Any]) -> list[Any]:
    """What LLVM makes of it, world by world."""
    named = func.with_attr("global_symbol", "main")
    kernel = tvm.compile(tvm.IRModule({"main": named}), {"kind": "llvm", "opt-level": 0})["main"]
    worlds = []
    for world in range(WORLDS):
        results = [
            tvm.runtime.empty([int(e) for e in p.ty.shape], str(p.ty.dtype)) for p in func.params[len(operands) :]
        ]
        kernel(*(tvm.runtime.tensor(np.array(a[world])) for a in operands), *results)
        worlds.append([r.numpy() for r in results])
    return [np.stack(result) for result in zip(*worlds, strict=True)]


@pytest.mark.parametrize("name", OPS)
def test_as_llvm(name: str) -> None:
    build, shapes = OPS[name]
    func = legal(build, *shapes)
    operands = arrays(func, len(shapes))
    found = run_prim_func(func, [Masked.of(a) for a in operands])
    for got, wanted in zip(found, compiled(func, operands), strict=True):
        assert got.values.dtype == wanted.dtype
        assert got.defined.all()
        tolerance = 2e-3 if wanted.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(got.values, wanted, rtol=tolerance, atol=tolerance)


def test_undef_spreads_only_as_far_as_it_is_read() -> None:
    func = legal(lambda x: R.sum(x, axis=[1]), (3, 4))
    x = np.ones((1, 3, 4), "float32")
    defined = np.ones(x.shape, bool)
    defined[0, 1, 2] = False
    (result,) = run_prim_func(func, [Masked(x, defined)])
    assert result.defined.tolist() == [[True, False, True]]


def test_undef_stays_out_of_a_branch_that_is_not_taken() -> None:
    """``nn.pad`` reads its operand inside only, out of bounds elsewhere."""
    func = legal(lambda x: R.nn.pad(x, [1, 1]), (4,))
    (result,) = run_prim_func(func, [Masked.of(np.ones((1, 4), "float32"))])
    assert result.defined.all()
    assert result.values.tolist() == [[0, 1, 1, 1, 1, 0]]


def test_0_times_undef_is_undef() -> None:
    func = legal(R.multiply, (2,), (2,))
    zeros = Masked.of(np.zeros((1, 2), "float32"))
    (result,) = run_prim_func(func, [zeros, Masked(zeros.values, np.array([[True, False]]))])
    assert result.defined.tolist() == [[True, False]]


@pytest.mark.parametrize("fill", [0.0, UNDEF])
def test_a_padded_layout_defines_just_what_it_promises(fill: Any) -> None:
    func = legal(R.nn.relu, (2, 5, 3))
    computation = understood(func)
    fmt = padded((2, 5, 3), 1, 4, fill)
    x = np.random.default_rng(0).standard_normal((WORLDS, 2, 5, 3)).astype("float32")
    (wanted,) = run_prim_func(func, [Masked.of(x)])
    for flow in backward(computation, 0, fmt):
        operand = lay(flow.operands[0], x)
        (found,) = run_prim_func(relayout(func, computation, flow), [Masked(operand.values, operand.defined)])
        promised = lay(fmt, wanted.values)
        assert found.defined[promised.defined].all()
        np.testing.assert_array_equal(found.values[promised.defined], promised.values[promised.defined])


def test_a_store_out_of_bounds_is_an_error() -> None:
    @T.prim_func(s_tir=True)
    def wild(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("b"):
                v = T.axis.spatial(4, i)
                y[v + 1] = x[v]

    with pytest.raises(InterpreterError, match="wild: stores outside of y"):
        run_prim_func(wild, [Masked.of(np.ones((1, 4), "float32"))])


def test_symbolic_sizes_come_from_the_operands() -> None:
    func = legal(R.nn.relu, ("n", 3))
    (result,) = run_prim_func(func, [Masked.of(-np.ones((1, 5, 3), "float32"))])
    assert result.values.shape == (1, 5, 3)


def test_the_dtype_of_a_constant_is_kept() -> None:
    one = relax.const(np.float16(1))
    func = legal(lambda x: R.add(x, one), ((3,), "float16"))
    operands = [Masked.of(np.ones((1, 3), "float16"))]
    if len(func.params) == 3:
        operands.append(Masked.of(np.ones((1,), "float16")))
    (result,) = run_prim_func(func, operands)
    assert result.values.dtype == np.float16
