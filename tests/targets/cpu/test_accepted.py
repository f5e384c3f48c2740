"""Targets that LLVM ends the process at are refused, by a process that may be lost where only a trial tells."""

from __future__ import annotations

import platform
from typing import Any

import pytest
from programs import program
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.errors import EqsatError, TargetError
from eqsat_layout.targets.registry import target

X86 = {"mtriple": "x86_64-linux-gnu", "mcpu": "x86-64"}
VECTORS = {"mtriple": "riscv64-linux-gnu", "mattr": ["+v"]}

REFUSED: list[tuple[dict[str, Any], str]] = [
    (X86 | {"mattr": ["-sse"]}, "mattr -sse lacks sse2, without which there is no code for x86_64"),
    (X86 | {"mattr": ["-64bit"]}, "lacks 64bit"),
    (X86 | {"mattr": ["-64bit-mode"]}, "lacks 64bit-mode"),
    ({"mtriple": "aarch64-linux-gnu", "mattr": ["+amx-int8"]}, "knows no feature 'amx-int8' of aarch64"),
    (X86 | {"mcpu": "i386"}, "mcpu 'i386' lacks 64bit"),
    (X86 | {"mattr": ["+nonsense"]}, "knows no feature 'nonsense' of x86_64"),
    (X86 | {"mattr": ["nonsense"]}, r"names of features stand behind a \+ or a -"),
    (X86 | {"mattr": [""]}, "names of features stand"),
    (X86 | {"mfloat-abi": "weird"}, "invalid -mfloat-abi option weird"),
    (X86 | {"vector-width": -3}, "Invalid -vector-width value: -3"),
    ({"mtriple": "foo-bar"}, "makes no code for mtriple 'foo-bar'"),
    ({"mtriple": "riscv64-linux-gnu", "mattr": ["-64bit"]}, "makes no code for .*mattr -64bit: the process"),
]


@pytest.mark.parametrize(("config", "why"), REFUSED)
def test_targets_that_llvm_dies_of_are_refused_by_name(config: dict[str, Any], why: str) -> None:
    with pytest.raises(TargetError, match=why):
        target({"kind": "llvm", **config})


def test_features_may_be_taken_away() -> None:
    assert "avx512f" not in target({"kind": "llvm", **X86, "mcpu": "skylake-avx512", "mattr": ["-avx512f"]}).needs


@pytest.mark.skipif(platform.machine() == "riscv64", reason="runs there")
def test_a_kernel_that_llvm_dies_of_does_not_end_this_process() -> None:
    mod = program(lambda _, x, y: R.matmul(x, y), (16, 33), (33, 7), dtype="float16")
    with pytest.raises(EqsatError, match="can't be built: WorkerError: the process that made it ended"):
        eqsat_layout.compile(mod, target={"kind": "llvm", **VECTORS})
