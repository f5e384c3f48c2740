"""A machine without NVIDIA's driver: programs are made and saved, and say what running them needs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
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
from eqsat_layout.targets.gpu.host.plan_checks import check_plan


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


def test_a_program_of_bfloat16_is_read_where_nobody_has_imported_ml_dtypes(tmp_path: Path) -> None:
    """NumPy does not know the name there: the file was no program."""
    mod = program(lambda builder, x: builder.emit(op.nn.relu(x)), (4, 8), dtype="bfloat16")
    made = compiled(mod)
    replace(made, known=dict.fromkeys(made.sources, b"code")).save(tmp_path / "net")
    code = "import sys; from eqsat_layout.targets.cuda.host.executable import CudaProgram as P; P.load(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "net")], check=True)


def test_a_program_that_launches_nothing_is_saved(tmp_path: Path) -> None:
    """It has no machine code to wait for: saving called itself."""
    made = compiled(program(lambda builder, x: builder.emit(op.exp(x)), (0, 4)))
    assert not made.sources
    made.save(tmp_path / "net")
    assert CudaProgram.load(tmp_path / "net").plan == made.plan


def test_tensors_of_eight_billion_elements_have_a_plan() -> None:
    """Known sizes are counted in 64 bits; more than 2**32 threads were refused when the file was read."""
    made = compiled(program(lambda builder, x: builder.emit(op.negative(x)), (1 << 33,), dtype="int8"))
    check_plan(made.plan, made.sources)
