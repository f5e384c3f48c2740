"""What the planner thinks of products is what the build makes of them."""

from __future__ import annotations

from typing import Any, Final

import pytest
from programs import program
from targets.cuda.running import H100
from tvm import relax
from tvm.relax import op

from eqsat_layout.cost.model import RESULT
from eqsat_layout.cost.vectorise import heaviest
from eqsat_layout.graph.graph import Signature
from eqsat_layout.graph.importer import import_module
from eqsat_layout.targets.cuda.costs import CudaRoofline
from eqsat_layout.targets.cuda.kernels.product_model import ProductModel, plans_for, shape_of
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
    dtypes = [buffer.dtype for buffer in computation.buffers]
    return planned_product(heavy, dtypes, signature.results[0].dtype, 1.0)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_planner_sees_the_product_that_the_build_makes(case: Any, dtype: str) -> None:
    signature = signature_of(case, dtype)
    product = product_of(signature.func)
    assert planned(signature) == shape_of(product, arithmetic_of(product, H100))


def test_operands_of_two_dtypes_are_converted_by_threads() -> None:
    builder = relax.BlockBuilder()
    x, w = (relax.Var(n, relax.TensorType((64, 64), t)) for n, t in (("x", "float16"), ("w", "float32")))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            output = builder.emit_output(op.matmul(x, w, out_dtype="float32"))
        builder.emit_func_output(output)
    (signature,) = import_module(builder.get()).signatures.values()
    product = product_of(signature.func)
    assert planned(signature) == shape_of(product, arithmetic_of(product, H100))


def test_a_product_costs_what_its_fastest_plan_does() -> None:
    signature = signature_of(CASES["channels last"], "float16")
    product = product_of(signature.func)
    model = ProductModel(shape_of(product, arithmetic_of(product, H100)), arithmetic_of(product, H100), H100)
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
