"""What the tests of targets share: small Relax modules, and running them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm
from compare import stock_results
from tvm import relax

Array = npt.NDArray[Any]

# For each function in TVMScript TVM's parser asks where every frame of the stack was written. For one without a file
# inspect looks through all modules, each time again (two thirds of the collection), but it keeps its answers by file.
NO_FILES = [f"<frozen {name}>" for name in ("importlib._bootstrap", "importlib._bootstrap_external", "runpy")]
inspect.modulesbyfile.update(dict.fromkeys([*NO_FILES, "<string>", "<ast>", "<remote exec>"], ""))


@pytest.fixture(scope="session")
def make_module() -> Callable[..., Any]:
    """``make_module(body, *shapes)``: a module whose main returns ``body(emit, *params)``."""

    def make(body: Callable[..., Any], *shapes: Sequence[Any], dtype: str = "float32") -> Any:
        builder = relax.BlockBuilder()
        params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
        with builder.function("main", params):
            with builder.dataflow():
                output = builder.emit_output(body(builder.emit, *params))
            builder.emit_func_output(output)
        return builder.get()

    return make


@pytest.fixture(scope="session")
def run() -> Callable[..., Array]:
    """``run(executable, *arrays)``: what main returns."""

    def call(executable: Any, *arrays: Array) -> Array:
        machine = relax.VirtualMachine(executable, tvm.cpu())
        result: Array = machine["main"](*(tvm.runtime.tensor(a) for a in arrays)).numpy()
        return result

    return call


@pytest.fixture(scope="session")
def unscheduled() -> Callable[..., Array]:
    """``unscheduled(mod, *arrays)``: what main returns when TVM builds it without any schedule of ours."""

    def call(mod: Any, *arrays: Array) -> Array:
        (result,) = stock_results(mod, *arrays)
        return result

    return call


@pytest.fixture(scope="session")
def arrays() -> Callable[..., list[Array]]:
    """``arrays(*shapes)``: normal numbers, the same every time."""

    def make(*shapes: Sequence[int]) -> list[Array]:
        rng = np.random.default_rng(7)
        return [rng.standard_normal(shape).astype("float32") for shape in shapes]

    return make
