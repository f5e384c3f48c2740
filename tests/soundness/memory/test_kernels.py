"""Kernels between protected pages: who touches what is not theirs is named, with the operand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from eqsat_layout import compile as compiled
from eqsat_layout.errors import TargetError
from eqsat_layout.soundness.memory.kernels import memory_fault
from eqsat_layout.soundness.memory.pages import GuardedMemory, PagePlace
from eqsat_layout.soundness.programs.choices import Choices
from eqsat_layout.soundness.programs.outcomes import SAME
from eqsat_layout.soundness.programs.trial import check_program
from eqsat_layout.soundness.programs.tried import Guarded, said, tried_for
from eqsat_layout.targets.registry import target


def module(read: int, written: int) -> Any:
    """A kernel that reads and writes that many elements behind (or, below 0, before) those of a row of 9."""

    @I.ir_module
    class Shifted:
        @T.prim_func(private=True, s_tir=True)
        def shifted(a: T.Buffer((T.int64(9),), "float32"), b: T.Buffer((T.int64(9),), "float32")):
            for i in range(T.int64(9)):
                with T.sblock("b"):
                    v = T.axis.spatial(T.int64(9), i)
                    b[v + T.int64(written)] = a[v + T.int64(read)] + T.float32(1)

        @R.function
        def main(x: R.Tensor((9,), "float32")):
            cls = Shifted
            with R.dataflow():
                gv = R.call_tir(cls.shifted, (x,), out_ty=R.Tensor((9,), "float32"))
                R.output(gv)
            return gv

    return Shifted


def fault(read: int, written: int) -> str:
    executable = compiled(module(read, written), target("llvm").at_any_address)
    return memory_fault(executable, [("main", [tvm.runtime.tensor(np.ones(9, "float32"))])])


def test_a_kernel_that_keeps_to_its_operands_has_no_fault() -> None:
    assert fault(0, 0) == ""


@pytest.mark.parametrize(
    ("read", "written", "said"),
    [
        (1, 0, "reads outside of operand 0"),
        (-1, 0, "reads outside of operand 0"),
        (0, 1, "writes outside of operand 1"),
    ],
)
def test_an_element_too_far_is_named_with_its_kernel(read: int, written: int, said: str) -> None:
    found = fault(read, written)
    assert found.startswith("kernel shifted")
    assert said in found


def test_bytes_beside_its_own_are_looked_at() -> None:
    memory = GuardedMemory(10, PagePlace.END, alignment=64)
    behind = memory._pages
    assert memory.damage() == ""
    behind[-54] = 0
    assert memory.damage() == "the byte 1 behind its last is written"
    memory.free()


@pytest.mark.parametrize("seed", [0, 3])
def test_programs_are_fuzzed_so(seed: int) -> None:
    assert check_program(Choices.of_seed(seed), seed, target=Guarded("llvm")).kind == SAME


def test_where_no_operands_can_be_guarded_is_said_before_a_program_is_tried() -> None:
    with pytest.raises(TargetError, match="operands are guarded on CPUs only"):
        tried_for({"kind": "cuda", "arch": "sm_90"}, guarded=True)


@pytest.mark.parametrize("guarded", [False, True])
def test_that_programs_are_for_another_cpu_is_said_before_one_is_tried(guarded: bool) -> None:
    """Each of them failed: "dev is expected to be Device or List[Device]"."""
    with pytest.raises(TargetError, match=r"this machine does not run programs for llvm .*cortex-a72"):
        tried_for({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}, guarded=guarded)


@pytest.mark.parametrize("options", [{}, {"exact": True}, {"guarded": True}])
def test_a_failure_names_the_command_that_shows_it(options: dict[str, bool]) -> None:
    flags = said(tried_for(None, **options)).split()
    assert [flag for flag in flags if flag not in ("--target", "llvm")] == [f"--{name}" for name in options]
