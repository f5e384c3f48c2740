"""Tuning for OpenCL over TVM's RPC, on this machine: a tracker, and a server whose sessions run TVM's runtime on PoCL.

In: TVM's OpenCL runtime, which its wheel has none of. Out: how many kernels were measured, and plans' times.
The library is made of ``src/backend/opencl/runtime`` of TVM's sources, of the release that is installed:

    g++ -std=c++20 -O1 -fPIC -shared opencl_device_api.cc opencl_module.cc opencl_wrapper/opencl_wrapper.cc
        -I <TVM>/include -I <wheel>/tvm_ffi/include -I <OpenCL-Headers> -o libtvm_runtime_opencl.so
        -L <wheel>/tvm/lib -ltvm_runtime -L <wheel>/tvm_ffi/lib -ltvm_ffi -ldl

``LD_LIBRARY_PATH`` has to name a folder with a ``libOpenCL.so``, such as a link to that in pyopencl's ``.libs``.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import socket
import tempfile
import time
from typing import Any, Final

import numpy as np
from tvm import relax
from tvm.relax import op
from tvm.rpc import server
from tvm.rpc.tracker import Tracker

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.opencl.host.device import first_context
from eqsat_layout.tuning.remote import Remote
from eqsat_layout.tuning.tune import tune

HOST: Final = "127.0.0.1"
KEY: Final = "pocl"
ADRENO: Final = {"kind": "opencl", "device": "adreno"}


def serve(tracker: int, library: str) -> None:
    """A device; each session is a process of its own, which finds PoCL before TVM's runtime asks for it."""
    plain = server._server_env

    def with_opencl(load_library: Any, work_path: Any = None) -> Any:
        first_context()
        ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
        return plain(load_library, work_path)

    server._server_env = with_opencl
    multiprocessing.set_start_method("fork", force=True)  # sessions are to find it
    with socket.create_server((HOST, 0)) as listening:
        server._listen_loop(listening, listening.getsockname()[1], KEY, (HOST, tracker), None, None)


def convolutions(count: int, channels: int, edge: int) -> Any:
    """A chain of them, with ReLU."""
    builder, random = relax.BlockBuilder(), np.random.default_rng(0)
    x = relax.Var("x", relax.TensorType((1, channels, edge, edge), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y: Any = x
            for _ in range(count):
                weight = relax.const(random.standard_normal((channels, channels, 3, 3)).astype("float32"))
                y = builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(y, weight, padding=1))))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    return builder.get()


def appeared(tracker: int, patience: float) -> Remote:
    """The device, once the tracker knows it."""
    remote, end = Remote(HOST, tracker, KEY), time.monotonic() + patience
    while True:
        try:
            remote.runner(ADRENO)
            return remote
        except TargetError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", help="libtvm_runtime_opencl.so")
    parser.add_argument("--seconds", type=float, default=300.0, help="no kernel is begun after that")
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    tracker = Tracker(HOST, port=9190, port_end=9999, silent=True)
    process = context.Process(target=serve, args=(int(tracker.port), given.library))
    process.start()
    try:
        remote = appeared(int(tracker.port), 60.0)
        with tempfile.TemporaryDirectory() as folder:
            found = tune(convolutions(3, 32, 14), ADRENO, database=folder, remote=remote, seconds=given.seconds)
        print(
            f"{found.measured} kernels measured, {len(found.failures)} failed, {found.left} left, {found.seconds:.0f} s"
        )
        if found.cost_before is not None and found.cost is not None:
            print(f"ms of the plan before {1e3 * found.cost_before:.3f}, of the best {1e3 * found.cost:.3f}")
        for failure in found.failures:
            print(f"{failure.kernel}: {failure.reason}")
    finally:
        process.terminate()
        tracker.terminate()


if __name__ == "__main__":
    main()
