"""A machine without NVIDIA's driver: programs are made and saved, and say what running them needs."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from programs import program
from targets.cuda.simulating import compiled
from tvm.relax import op

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.cuda.compiler import available_compiler
from eqsat_layout.targets.cuda.host.executable import CudaProgram


def bindings(driver: Any) -> dict[str, ModuleType]:
    """The package, as far as it is imported."""
    package, inner = ModuleType("cuda"), ModuleType("cuda.bindings")
    inner.driver = driver  # type: ignore[attr-defined]
    package.bindings = inner  # type: ignore[attr-defined]
    return {"cuda": package, "cuda.bindings": inner, "cuda.bindings.driver": driver}


def driver_that_is_not_there() -> ModuleType:
    driver = ModuleType("cuda.bindings.driver")

    def init(_flags: int) -> Any:
        raise RuntimeError('"cuda" is an NVIDIA driver library')

    driver.cuInit = init  # type: ignore[attr-defined]
    return driver


@pytest.mark.skipif(available_compiler() is None, reason="neither NVRTC nor nvcc is here")
def test_it_is_made_and_saved_and_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled(program(lambda builder, x: builder.emit(op.nn.relu(x)), (4,)))
    made.save(tmp_path / "relu.program")
    again = CudaProgram.load(tmp_path / "relu.program")
    x = np.zeros(4, "float32")
    monkeypatch.setitem(sys.modules, "cuda", None)
    with pytest.raises(TargetError, match=r"pip install .eqsat-layout\[cuda\]"):
        again(x)
    for name, module in bindings(driver_that_is_not_there()).items():
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(TargetError, match="need NVIDIA's driver here"):
        again(x)
