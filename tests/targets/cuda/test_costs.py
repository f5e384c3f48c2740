"""What the planner thinks of products is what the build makes of them."""

from __future__ import annotations

import math
import re
from typing import Any, Final

import numpy as np
import pytest
from programs import program
from targets.cuda.running import H100
from targets.cuda.simulating import compiled
from tvm import relax, te, tirx
from tvm.relax import op

from eqsat_layout.cost.model import RESULT
from eqsat_layout.cost.vectorise import heaviest
from eqsat_layout.errors import Refused
from eqsat_layout.graph.graph import Signature
from eqsat_layout.graph.importer import import_module
from eqsat_layout.maps import Digit, Format, IndexMap
from eqsat_layout.targets.cuda.candidates import candidates
from eqsat_layout.targets.cuda.costs import CudaRoofline
from eqsat_layout.targets.cuda.kernels.product_model import model_of, model_shape, plans_for
from eqsat_layout.targets.cuda.kernels.product_plan import arithmetic_of
from eqsat_layout.targets.cuda.kernels.products import product_of
from eqsat_layout.targets.cuda.planned_products import planned_product

NHWC: Final = {"data_layout": "NHWC", "kernel_layout": "OHWI"}

CASES: Final[dict[str, tuple[Any, Any, Any]]] = {
    "matmul": (op.matmul, (64, 96), (96, 128)),
    "batches": (op.matmul, (3, 40, 64), (3, 64, 48)),
    "one weight": (op.matmul, (3, 40, 64), (64, 48)),
    "few rows": (op.matmul, (1, 512), (512, 128)),
    "odd": (op.matmul, (33, 37), (37, 35)),
    "conv": (lambda x, w: op.nn.conv2d(x, w, padding=1), (1, 32, 14, 14), (64, 32, 3, 3)),
    "pointwise": (op.nn.conv2d, (1, 32, 14, 16), (64, 32, 1, 1)),
    "strided": (lambda x, w: op.nn.conv2d(x, w, strides=2, padding=1), (1, 32, 15, 15), (64, 32, 3, 3)),
    "grouped": (lambda x, w: op.nn.conv2d(x, w, padding=1, groups=2), (1, 32, 14, 14), (64, 16, 3, 3)),
    "grouped, last": (
        lambda x, w: op.nn.conv2d(x, w, padding=1, groups=2, **NHWC),
        (1, 14, 14, 32),
        (64, 3, 3, 16),
    ),
    "images": (lambda x, w: op.nn.conv2d(x, w, padding=1), (4, 32, 7, 7), (64, 32, 3, 3)),
    "channels last": (lambda x, w: op.nn.conv2d(x, w, padding=1, **NHWC), (1, 14, 14, 32), (64, 3, 3, 32)),
    "pointwise, last": (lambda x, w: op.nn.conv2d(x, w, **NHWC), (1, 14, 14, 32), (64, 1, 1, 32)),
    "first layer": (lambda x, w: op.nn.conv2d(x, w, strides=2, padding=3, **NHWC), (1, 32, 32, 3), (64, 7, 7, 3)),
}


def signature_of(case: Any, dtype: str) -> Signature:
    make, *shapes = case
    mod = program(lambda builder, x, w: builder.emit(make(x, w)), *shapes, dtype=dtype)
    (signature,) = import_module(mod).signatures.values()
    return signature


def planned(signature: Signature) -> Any:
    computation, (operands, results) = signature.computation, signature.as_written
    assert computation is not None
    heavy = heaviest(computation, operands, results)
    assert heavy is not None
    return planned_product(heavy, computation, signature.results[0].dtype, 1.0)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_planner_sees_the_product_that_the_build_makes(case: Any, dtype: str) -> None:
    signature = signature_of(case, dtype)
    product = product_of(signature.func)
    assert planned(signature) == model_shape(product, arithmetic_of(product, H100))


def test_operands_of_two_dtypes_are_converted_by_threads() -> None:
    builder = relax.BlockBuilder()
    x, w = (relax.Var(n, relax.TensorType((64, 64), t)) for n, t in (("x", "float16"), ("w", "float32")))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            output = builder.emit_output(op.matmul(x, w, out_dtype="float32"))
        builder.emit_func_output(output)
    (signature,) = import_module(builder.get()).signatures.values()
    product = product_of(signature.func)
    assert planned(signature) == model_shape(product, arithmetic_of(product, H100))


def test_a_product_costs_what_its_fastest_plan_does() -> None:
    signature = signature_of(CASES["channels last"], "float16")
    product = product_of(signature.func)
    model = model_of(product, H100)
    fastest = model.seconds(plans_for(product, H100)[0])
    costs, formats = CudaRoofline(H100), signature.as_written
    assert costs.run(signature, *formats) == pytest.approx(fastest)
    assert costs.run(signature, *formats, fused=frozenset({RESULT})) == pytest.approx(fastest - model.storing)
    assert costs.run(signature, *formats, fused=frozenset({0})) == pytest.approx(fastest - H100.launch_seconds)


def test_what_is_no_product_is_not_planned_as_one() -> None:
    depthwise = (lambda x, w: op.nn.conv2d(x, w, padding=1, groups=32), (1, 32, 14, 14), (32, 1, 3, 3))
    assert planned(signature_of(depthwise, "float32")) is None
    doubles = (op.matmul, (64, 96), (96, 128))
    assert planned(signature_of(doubles, "float64")) is None


def test_exact_products_stay_off_tensor_cores() -> None:
    signature = signature_of((op.matmul, (1024, 1024), (1024, 1024)), "float32")
    formats = signature.as_written
    assert CudaRoofline(H100, approx=False).run(signature, *formats) > 2 * CudaRoofline(H100).run(signature, *formats)


def windows(order: str, images: int = 32) -> Signature:
    """A depthwise convolution of 7x7, as of ConvNeXt, with data and result in the order NCHW or NHWC."""
    last = order == "NHWC"
    given = {"data_layout": order, "kernel_layout": "HWOI" if last else "OIHW"}
    shapes = ((images, 56, 56, 96), (7, 7, 96, 1)) if last else ((images, 96, 56, 56), (96, 1, 7, 7))
    return signature_of((lambda x, w: op.nn.conv2d(x, w, padding=3, groups=96, **given), *shapes), "float16")


def test_windows_of_one_channel_are_no_product() -> None:
    """Of 49 steps: tensor cores took them, 22 times as long, in layouts that the kernel for windows does not."""
    signature = windows("NCHW")
    assert planned(signature) is None
    with pytest.raises(Refused, match="windows of one channel"):
        product_of(signature.func)


def test_channels_last_are_best_for_windows_of_one_channel() -> None:
    """All layouts cost the same, so that the ones around them were kept."""
    own = CudaRoofline(H100)
    last, first = (own.run(one, *one.as_written) for one in (windows("NHWC"), windows("NCHW")))
    assert 2 * last < first < 2e-4
    signature = windows("NHWC")
    (data, weight), results = signature.as_written
    apart = Format.make(IndexMap.make(data.shape, [(Digit(a, 1, data.shape[a]),) for a in (0, 3, 1, 2)]))
    assert own.run(signature, [apart, weight], results) > 2 * last


def test_windows_come_from_memory_once() -> None:
    """What they share was counted for each of their places: nine times the data of a convolution of 3x3."""
    size = (32, 112, 112, 64)
    one = (lambda x, w: op.nn.conv2d(x, w, padding=1, **NHWC), size, (64, 3, 3, 64))
    signature = signature_of(one, "float16")
    assert planned(signature).elements == (math.prod(size), 64 * 9 * 64)
    moved = 2 * 2 * math.prod(size) / H100.bandwidth
    assert CudaRoofline(H100).run(signature, *signature.as_written) < 4.5 * moved


def test_a_matrix_that_is_made_of_no_operand_has_a_size() -> None:
    """ "max() arg is an empty sequence": a mask that a kernel of the user's multiplies by."""

    def masked(x: te.Tensor) -> te.Tensor:
        mask = te.compute((128, 64), lambda i, j: tirx.Select(i <= j, tirx.const(1.0), tirx.const(0.0)), name="mask")
        k = te.reduce_axis((0, 128), name="k")
        return te.compute((64, 64), lambda i, j: te.sum(x[i, k] * mask[k, j], axis=k), name="sums")

    mod = program(lambda builder, x: builder.emit_te(masked, x), (64, 128))
    signatures = import_module(mod).signatures.values()
    (signature,) = [one for one in signatures if one.computation is not None]
    assert planned(signature).elements == (64 * 128, 128 * 64)


def test_weights_of_a_result_as_it_is_lie_in_step_with_the_data() -> None:
    """They were left as they are written, and loaded one by one: three convolutions of ResNet-50."""
    signature = signature_of(CASES["images"], "float16")
    computation = signature.computation
    assert computation is not None
    (own,) = (one.flow for one in candidates(computation) if one.name == "weights in step with the data")
    assert [str(fmt) for fmt in own.operands] == ["(i, j, k, l) -> (i, k, l, j)"] * 2
    heavy = heaviest(computation, own.operands, own.results)
    assert heavy is not None
    assert planned_product(heavy, computation, "float16", 1.0).together == (16, 16)


def test_weights_of_products_of_bytes_are_packed_along_their_steps() -> None:
    """Bytes are not transposed on their way: those of each column were loaded one by one."""
    weight = relax.const(np.ones((768, 768), "int8"))
    mod = program(lambda b, x: b.emit(op.matmul(x, weight, out_dtype="int32")), (128, 768), dtype="int8")
    (source,) = compiled(mod).sources.values()
    assert "mma.sync" in source
    assert not re.search(r"signed char\*\)shared_ptr\)\[[^;]* = \w+_ptr\[", source)
