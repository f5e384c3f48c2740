"""Small programs, each of one family of kernels, with what they give in float64.

In: nothing. Out: :class:`Case` by case. Operands are inputs, which a seed makes; whole numbers, where sums of products
are exact whatever their order, say whether every lane of every instruction holds what we think.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import relax
from tvm.relax import op

import eqsat_layout
from bench.cuda.bundles.data import Array, Recipe
from bench.cuda.bundles.items import CASE, Item
from bench.results import flat
from eqsat_layout.graph.legalize import legalize
from eqsat_layout.soundness.programs.check import unscheduled_machine
from eqsat_layout.targets.cuda.host.executable import CudaProgram
from eqsat_layout.targets.cuda.target import CudaTarget, make_target

Body = Callable[..., Any]

_LANES: Final = ((48, 80), (80, 72))
_STREAMED: Final = ((128, 384), (384, 320))
_FEW: Final = "driver:3,232448,233472,65536,52428800,100000,2619000,5120"
"""A machine of three slow multiprocessors, for which small products are dealt out as large ones are for others."""

_TOLERANCES: Final = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 2e-2}


@dataclass(frozen=True)
class Case:
    """``body``: from a builder's ``emit`` and operands to a result. ``whole``: results are exact. ``few``: planned
    for few multiprocessors."""

    name: str
    body: Body
    shapes: Sequence[tuple[int, ...]]
    dtype: str
    whole: bool = False
    few: bool = False

    def module(self, dtype: str) -> tvm.IRModule:
        """The program, computed in ``dtype``."""
        builder = relax.BlockBuilder()
        params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(self.shapes)]
        with builder.function("main", params):
            with builder.dataflow():
                result = builder.emit_output(self.body(builder.emit, *params))
            builder.emit_func_output(result)
        return builder.get()

    def item(self) -> Item:
        """Without a program yet."""
        spread = {"deviation": 2.0, "low": -3.0, "high": 3.0} if self.whole else {}
        inputs = [Recipe(shape, self.dtype, i + 1, whole=self.whole, **spread) for i, shape in enumerate(self.shapes)]
        return Item(self.name, CASE, (), inputs, 0.0 if self.whole else _TOLERANCES[self.dtype])

    def expected(self, inputs: Sequence[Array]) -> list[Array]:
        """Of the inputs, in float64 on the CPU."""
        machine = unscheduled_machine(legalize(self.module("float64")))
        given = [tvm.runtime.tensor(one.astype("float64")) for one in inputs]
        return flat(machine["main"](*given))


def cases(names: Sequence[str] | None = None) -> Iterator[Case]:
    """All, or some by name."""
    return (case for case in _all() if names is None or case.name in names)


def _all() -> Iterator[Case]:
    for name, (body, shapes) in FAMILIES.items():
        for dtype in _TOLERANCES:
            yield Case(f"{name}_{dtype}", body, shapes, dtype)
    for dtype in _TOLERANCES:
        yield Case(f"lanes_{dtype}", _product, _LANES, dtype, whole=True)
        yield Case(f"streamed_{dtype}", _product, _STREAMED, dtype, few=True)
    for name, body in (("int8", _bytes), ("uint8_int8", _unsigned_bytes)):
        yield Case(f"lanes_{name}", body, _LANES, "int8", whole=True)


def made(case: Case, target: CudaTarget) -> tuple[Item, CudaProgram, list[Array]]:
    """The item, its program, and what it gives in float64."""
    if case.few:
        target = make_target({"kind": target.kind, "arch": str(target.tvm.attrs["arch"]), "model": _FEW}, target.approx)
    item, program = case.item(), eqsat_layout.compile(case.module(case.dtype), target)
    return item, program, case.expected([one.array() for one in item.inputs])


def _product(emit: Any, a: Any, b: Any) -> Any:
    return emit(op.matmul(a, b))


def _bytes(emit: Any, a: Any, b: Any) -> Any:
    return emit(op.matmul(a, b, out_dtype="int32")) if str(b.ty.dtype) == "int8" else _product(emit, a, b)


def _unsigned_bytes(emit: Any, a: Any, b: Any) -> Any:
    a = emit(op.abs(a))
    return _bytes(emit, emit(op.astype(a, "uint8")) if str(a.ty.dtype) == "int8" else a, b)


def _epilogue(emit: Any, a: Any, b: Any, bias: Any) -> Any:
    return emit(op.nn.gelu(emit(op.add(emit(op.matmul(a, b)), bias))))


def _conv(emit: Any, x: Any, w: Any, bias: Any) -> Any:
    return emit(op.nn.relu(emit(op.add(emit(op.nn.conv2d(x, w, strides=2, padding=1)), bias))))


def _pointwise(emit: Any, x: Any, w: Any) -> Any:
    """Rows of channels on both sides: what tensor maps are of."""
    return emit(op.nn.relu(emit(op.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="OHWI"))))


def _depthwise(emit: Any, x: Any, w: Any) -> Any:
    return emit(op.clip(emit(op.nn.conv2d(x, w, padding=1, groups=int(w.ty.shape[0]))), 0, 6))


def _grouped(emit: Any, x: Any, w: Any) -> Any:
    return emit(op.nn.conv2d(x, w, padding=1, groups=2))


def _transposed(emit: Any, x: Any, w: Any) -> Any:
    return emit(op.nn.conv2d_transpose(x, w, strides=2))


def _attention(emit: Any, q: Any, k: Any, v: Any) -> Any:
    scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
    return emit(op.matmul(emit(op.nn.softmax(scores)), v))


def _norm(emit: Any, x: Any, scale: Any, shift: Any) -> Any:
    """Written out: TVM has no layer norm of float64."""
    away = emit(op.subtract(x, emit(op.mean(x, axis=[-1], keepdims=True))))
    spread = emit(op.mean(emit(op.multiply(away, away)), axis=[-1], keepdims=True))
    unit = emit(op.multiply(away, emit(op.rsqrt(emit(op.add(spread, relax.const(1e-5, x.ty.dtype)))))))
    return emit(op.add(emit(op.multiply(unit, scale)), shift))


def _softmax(emit: Any, x: Any) -> Any:
    return emit(op.nn.softmax(x))


def _mean(emit: Any, x: Any) -> Any:
    return emit(op.mean(x, axis=[-1]))


def _pool(emit: Any, x: Any) -> Any:
    return emit(op.nn.max_pool2d(x, [3, 3], strides=[2, 2], padding=[1, 1]))


def _resize(emit: Any, x: Any) -> Any:
    height, width = (2 * int(extent) for extent in list(x.ty.shape)[2:])
    return emit(op.image.resize2d(x, relax.ShapeExpr([height, width]), layout="NCHW", method="nearest_neighbor"))


def _transpose(emit: Any, x: Any) -> Any:
    return emit(op.permute_dims(x, [0, 2, 3, 1]))


FAMILIES: Final[dict[str, tuple[Body, Sequence[tuple[int, ...]]]]] = {
    "matmul": (_epilogue, ((70, 96), (96, 72), (72,))),
    "split_sum": (_product, ((16, 1024), (1024, 32))),
    "batched": (_product, ((3, 40, 48), (3, 48, 56))),
    "conv": (_conv, ((1, 16, 15, 15), (32, 16, 3, 3), (1, 32, 1, 1))),
    "pointwise": (_pointwise, ((1, 20, 20, 72), (136, 1, 1, 72))),
    "depthwise": (_depthwise, ((1, 32, 14, 14), (32, 1, 3, 3))),
    "grouped": (_grouped, ((1, 32, 9, 9), (64, 16, 3, 3))),
    "transposed": (_transposed, ((1, 16, 7, 7), (16, 8, 2, 2))),
    "attention": (_attention, ((1, 2, 24, 16),) * 3),
    "layer_norm": (_norm, ((5, 96), (96,), (96,))),
    "softmax": (_softmax, ((9, 100),)),
    "mean": (_mean, ((6, 8, 49),)),
    "max_pool": (_pool, ((1, 16, 15, 15),)),
    "resize": (_resize, ((1, 8, 9, 9),)),
    "transpose": (_transpose, ((1, 24, 10, 10),)),
}
"""By name: the ops, and the shapes of operands."""
