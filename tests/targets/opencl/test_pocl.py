"""PoCL on a CPU that is newer than its LLVM: it refuses the name "generic", and is mended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from programs import program
from targets.opencl.running import compiled, context
from tvm.relax import op

_SCRIPT = """
import ctypes
import pyopencl as cl
from eqsat_layout.targets.opencl.host import pocl

device = next(d for p in cl.get_platforms() for d in p.get_devices() if p.name == "Portable Computing Language")
pocl._REFUSED = b"x86_64-unknown-linux-gnu\\0"  # the name of the CPU is in the record after that of the system
place = pocl._place_of_name(device.int_ptr) + 8
pocl._REFUSED = b"generic\\0"
unknown = ctypes.create_string_buffer(b"generic")
ctypes.c_void_p.from_address(place).value = ctypes.addressof(unknown)
assert pocl._place_of_name(device.int_ptr) == place


def build():
    cl.Program(cl.Context([device]), "__kernel void f(__global float* a) { a[0] = 1; }").build()


try:
    build()
except cl.RuntimeError:
    print("refused")
assert pocl.mend(device)
build()
assert not pocl.mend(device)
print("mended")
"""


def test_a_cpu_that_pocl_does_not_know_is_mended(tmp_path: Path) -> None:
    """In a process of its own, as the record of the device is changed."""
    environment = os.environ | {"POCL_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["refused", "mended"], done.stderr


def test_kernels_of_halves_are_one_program() -> None:
    """Each brought the functions that convert halves, so together they were refused, and then built one by one."""
    import pyopencl as cl

    def body(builder: Any, x: Any) -> Any:
        return builder.emit(op.exp(x)), builder.emit(op.sum(x, [1]))

    sources = compiled(program(body, (4, 6), dtype="float16"), {"kind": "opencl", "profile": "pocl"}).sources
    assert len(sources) == 2
    cl.Program(context(), "\n".join(sources.values())).build()
