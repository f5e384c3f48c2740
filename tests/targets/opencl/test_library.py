"""TVM's executables for hosts with OpenCL: their kernels are those of the program beside them, which PoCL runs.

The wheel has no OpenCL runtime; where one is loaded, the library itself is run, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import tvm
from compare import assert_close, inputs_for, machine
from programs import program
from targets.device_cases import SIZE, chain, of_symbolic_size, several_results
from targets.opencl.running import ADRENO, results
from tvm import relax
from tvm.relax import op

import eqsat_layout
from eqsat_layout.errors import TargetError
from eqsat_layout.maps import GLOBAL
from eqsat_layout.targets.opencl.library import OpenClLibrary
from eqsat_layout.targets.registry import target as registry_target
from eqsat_layout.validation.inputs import arrays_in

HOST: Final = {**ADRENO, "host": "llvm"}


def check(mod: Any, folder: Path, target: Any = HOST) -> OpenClLibrary:
    """Its program gives the CPU's numbers, and its file has the same kernels."""
    made = eqsat_layout.compile(mod, target)
    assert isinstance(made, OpenClLibrary)
    assert made.program is not None
    inputs = inputs_for(mod["main"], 3)
    expected = list(arrays_in(machine(mod)["main"](*inputs)))
    for a, b in zip(expected, results(made.program, [one.numpy() for one in inputs]), strict=True):
        assert_close(a, b)
    made.export_library(str(folder / "net.so"))
    (text,) = sources(made)
    for name, source in made.program.sources.items():
        assert source in text, name
    if tvm.get_global_func("device_api.opencl", allow_missing=True):
        vm = relax.VirtualMachine(tvm.runtime.load_module(str(folder / "net.so")), tvm.opencl(0))
        got = vm["main"](*[tvm.runtime.tensor(one.numpy(), tvm.opencl(0)) for one in inputs])
        for a, b in zip(expected, arrays_in(got), strict=True):
            assert_close(a, b)
    return made


def sources(library: OpenClLibrary) -> Iterator[str]:
    """The OpenCL C in it."""
    left = [library.mod]
    while left:
        one = left.pop()
        left += list(one.imports)
        if one.kind == "opencl":
            yield str(one.inspect_source())


def test_a_chain_of_convolutions_in_images(tmp_path: Path) -> None:
    made = check(program(chain, SIZE), tmp_path)
    assert made.program is not None
    assert any(value.scope != GLOBAL for value in made.program.plan.values)


def test_several_results(tmp_path: Path) -> None:
    check(program(several_results, SIZE), tmp_path)


def test_sizes_that_are_known_at_run_time_only(tmp_path: Path) -> None:
    check(of_symbolic_size("h"), tmp_path)


@pytest.mark.parametrize("profile", ["adreno5xx", "powervr", "pocl"])
def test_other_devices(profile: str, tmp_path: Path) -> None:
    check(program(chain, SIZE), tmp_path, {"kind": "opencl", "profile": profile, "host": "llvm"})


def test_halves_where_there_is_no_arithmetic_for_them(tmp_path: Path) -> None:
    """Kernels take bits there; callers give halves all the same."""
    mod = program(lambda b, x: b.emit(op.nn.relu(x)), (4, 8), dtype="float16")
    check(mod, tmp_path, {"kind": "opencl", "profile": "pocl", "host": "llvm"})


def test_a_host_of_another_kind() -> None:
    """A phone: what is linked there is an object of its kind."""
    host = {"kind": "llvm", "mtriple": "aarch64-linux-android"}
    made = eqsat_layout.compile(program(chain, SIZE), {**ADRENO, "host": host})
    assert "aarch64" in next(one for one in made.mod.imports if one.kind == "llvm").inspect_source("ll")


@pytest.mark.parametrize("host", [{"mtriple": "foo-bar"}, {"mtriple": "x86_64-linux-gnu", "mattr": ["-64bit"]}])
def test_a_host_that_llvm_makes_no_code_for_is_refused(host: dict[str, Any]) -> None:
    """LLVM ended the process when the host's part was built."""
    with pytest.raises(TargetError, match=r"makes no code|there is no code"):
        registry_target({**ADRENO, "host": {"kind": "llvm", **host}})


def test_what_is_no_kernel_is_left_to_the_virtual_machine(tmp_path: Path) -> None:
    """A call of a function of the host; a program as data has no such thing."""
    ty = relax.TensorType((4, 8), "float32")
    builder, x = relax.BlockBuilder(), relax.Var("x", ty)
    with builder.function("main", [x], pure=False):
        called = builder.emit(relax.Call(relax.ExternFunc("a.function.of.the.host"), [x], None, [ty]))
        builder.emit_func_output(builder.emit(op.add(called, relax.const(np.float32(1)))))
    notes: list[str] = []
    made = eqsat_layout.compile(builder.get(), HOST, notes=notes)
    assert made.program is None
    assert any("which no kernel does" in note for note in notes)
    made.export_library(str(tmp_path / "net.so"))


def test_tvms_own_builds_are_left_alone() -> None:
    """Sources are cleaned by a global function, which is gone when the library is made."""
    eqsat_layout.compile(program(chain, SIZE), HOST)
    assert tvm.get_global_func("tvm_callback_opencl_postproc", allow_missing=True) is None


def test_a_kernel_that_tuning_times_is_given_what_it_reads() -> None:
    """Behind RPC TVM's machine makes buffers of images, so kernels are called by themselves."""
    own = registry_target(HOST)
    made = eqsat_layout.compile(program(lambda b, x: b.emit(op.nn.relu(x)), (4, 8)), HOST)
    alone = own.alone(made)
    assert alone is not None
    assert [tuple(one) for one in alone.tensors] == [((4, 8), "float32", GLOBAL)] * 2
    assert own.alone(eqsat_layout.compile(program(several_results, SIZE), HOST)) is None


def test_a_device_gets_the_host_that_it_says_it_has() -> None:
    own = registry_target(ADRENO).on_host({"kind": "llvm", "mtriple": "aarch64-linux-android"})
    assert str(own.tvm.host.attrs["mtriple"]) == "aarch64-linux-android"
    assert own.on_host({"kind": "llvm"}) is own
