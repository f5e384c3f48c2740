"""Programs whose launches overlap, where a machine can do that."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from programs import program
from targets.cuda.cases import conv
from targets.cuda.running import Kernels, in_double_precision, inputs_of, needs_compiler, relative_error, result_of
from targets.cuda.simulating import check
from targets.cuda.test_products import TOLERANCES, small
from targets.device_cases import SIZE, chain
from tvm.relax import op

from eqsat_layout.soundness.cuda import KernelFault
from eqsat_layout.soundness.cuda.driver import simulated
from eqsat_layout.targets.cuda.compiler import compiled
from eqsat_layout.targets.cuda.kernels.product_kernel import product_kernel
from eqsat_layout.targets.cuda.kernels.products import product_of

H100 = {"kind": "cuda", "arch": "sm_90"}


def test_all_launches_but_the_first_overlap() -> None:
    made = check(program(chain, SIZE), H100, orders=(0, 1, 2))
    (function,) = made.plan.functions
    assert [launch.overlaps for launch in function.launches] == [False] + [True] * (len(function.launches) - 1)
    assert len(function.launches) > 1


def test_weights_are_on_their_way_before_the_wait() -> None:
    (source,) = check(program(chain, SIZE), H100).sources.values()
    kernel = source[source.rindex('extern "C" __global__') :]
    before, after = kernel.split("griddepcontrol.wait")
    assert "cp_async" in before
    assert "cp_async" in after
    pointers = re.findall(r"(\w+_ptr)", before[before.index("cp_async") :])
    assert {name for name in pointers if name != "shared_ptr"} <= set(re.findall(r"__restrict__ (\w+)", kernel))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_residuals_are_loaded_ahead_of_the_stores(dtype: str) -> None:
    case = conv((6, 5), 16, 24, (3, 3), pad=1)
    func, twin = case(dtype, "float32", dtype), case("float64", "float64", "float64")
    product = product_of(func.with_attr("eqsat_layout.constants", ["w"]))
    for splits in (1, 2):
        kernels = Kernels(product_kernel(product, small(dtype, splits=splits)))
        arrays = inputs_of(func)
        first = result_of(kernels, arrays)
        assert relative_error(first, in_double_precision(twin, arrays)) < TOLERANCES[dtype]
        assert all((result_of(kernels, arrays, order) == first).all() for order in (1, 2))
        (source,) = kernels.sources.values()
        lines = source.splitlines()
        loads, stores = (
            [n for n, line in enumerate(lines) if text in line] for text in ("residual_ptr + ", "(d_ptr + ")
        )
        assert max(loads[: len(loads) // 2]) < min(stores), "those of the first of two bands"


def test_residuals_that_do_not_lie_together_are_loaded_one_by_one() -> None:
    """As after channels took turns: eight halves from eight places became a vector that no compiler takes."""

    def body(builder: Any, x: Any, w: Any, residual: Any) -> Any:
        turned = builder.emit(op.permute_dims(builder.emit(op.reshape(residual, (16, 4, 8))), [0, 2, 1]))
        return builder.emit(op.add(builder.emit(op.matmul(x, w)), builder.emit(op.reshape(turned, (16, 32)))))

    made = check(program(body, (16, 16), (16, 32), (16, 32), dtype="float16"), H100)
    assert any("_ahead" in source for source in made.sources.values())


def test_older_machines_have_none() -> None:
    made = check(program(chain, SIZE))
    assert not any(launch.overlaps for function in made.plan.functions for launch in function.launches)
    assert not any("griddepcontrol" in source for source in made.sources.values())


def test_kernels_that_do_not_wait_are_found() -> None:
    made = check(program(chain, SIZE), H100)
    sources = {
        name: text.replace("griddepcontrol.wait", "griddepcontrol.launch_dependents")
        for name, text in made.sources.items()
    }
    with pytest.raises(KernelFault, match="has not waited"):
        simulated(replace(made, sources=sources))(np.ones(SIZE, "float32"))


@needs_compiler
def test_they_are_compiled_as_they_are() -> None:
    for source in check(program(chain, SIZE), H100).sources.values():
        (facts,) = compiled(source, "sm_90").kernels.values()
        assert facts.spilled_bytes == 0
