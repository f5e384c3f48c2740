"""What a network can be run by: eqsat_layout, stock TVM, and other runtimes, each behind one interface.

``python -m bench.cpu.engines prepare|build|serve ...`` is what ``bench.cpu.latency`` starts, a process per engine, so
that thread pools, allocators and crashes keep apart; its environment says how many threads libraries may have.
``serve`` reads numbers of runs from its input and answers seconds as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.results import difference, flat, magnitude

Run = Callable[[], list[np.ndarray]]
"""One inference of the prepared input; gives the results."""


# ---- what is built once: seconds are those of the compiler ----------------------------------------------------------


def build(engine: str, job: Job) -> dict[str, Any]:
    """Compiles the network to a library in the job's folder (TVM only)."""
    from bench.networks import real

    module = real.load(job.model, "export", job.batch).module
    start = time.perf_counter()
    executable = BUILDS[engine](module)
    seconds = time.perf_counter() - start
    executable.export_library(str(job.library(engine)))
    return {"compile seconds": seconds}


def _eqsat_layout(module: Any) -> Any:
    import eqsat_layout

    return eqsat_layout.compile(module)


def _eqsat_layout_exact(module: Any) -> Any:
    import eqsat_layout

    return eqsat_layout.compile(module, approx=False)


def _stock(module: Any) -> Any:
    import tvm

    from eqsat_layout.targets.registry import target

    return tvm.compile(module, target=target().tvm)


def _stock_nhwc(module: Any) -> Any:
    import tvm
    from tvm import relax

    passes = relax.transform
    own = [passes.DecomposeOpsForInference(), passes.CanonicalizeBindings()]
    own += [passes.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]}), passes.FoldConstant()]
    return _stock(tvm.transform.Sequential(own)(module))


BUILDS: dict[str, Callable[[Any], Any]] = {
    "eqsat_layout": _eqsat_layout,
    "eqsat_layout exact": _eqsat_layout_exact,
    "TVM": _stock,
    "TVM NHWC": _stock_nhwc,
}
"""Engines that compile a Relax module to a library."""


# ---- what runs --------------------------------------------------------------------------------------------------


def _library(engine: str, job: Job) -> Run:
    import tvm
    from tvm import relax

    vm = relax.VirtualMachine(tvm.runtime.load_module(str(job.library(engine))), tvm.cpu())
    inputs = [tvm.runtime.tensor(array) for array in job.inputs()]
    main = vm["main"]
    return lambda: flat(main(*inputs))


def _onnxruntime(job: Job) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(job.onnx), options, providers=["CPUExecutionProvider"])
    feed = dict(zip((i.name for i in session.get_inputs()), job.inputs(), strict=True))
    return lambda: session.run(None, feed)


def _openvino(job: Job) -> Run:
    import openvino

    config = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": job.threads}
    compiled = openvino.Core().compile_model(str(job.onnx), "CPU", config)
    request = compiled.create_infer_request()
    request.infer(job.inputs())

    def run() -> list[np.ndarray]:
        request.infer()  # the inputs stay where they are
        return [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]

    return run


def _torch(job: Job, *, compiled: bool) -> Run:
    import torch

    from bench.networks import real

    torch.set_num_threads(job.threads)
    network, sample = real.network_of(job.model, job.batch)
    call: Any = torch.compile(network) if compiled else network

    def run() -> list[np.ndarray]:
        with torch.inference_mode():
            return [t.numpy() for t in real.tensors(call(*sample))]

    if compiled:
        run()  # compiles
    return run


def start(engine: str, job: Job) -> Run:
    """An engine that is ready to run."""
    if engine in BUILDS:
        return _library(engine, job)
    others: dict[str, Callable[[], Run]] = {
        "ONNX Runtime": lambda: _onnxruntime(job),
        "OpenVINO": lambda: _openvino(job),
        "torch": lambda: _torch(job, compiled=False),
        "torch.compile": lambda: _torch(job, compiled=True),
    }
    return others[engine]()


# ---- the process ------------------------------------------------------------------------------------------------


class Job:
    """A model, a batch and a number of threads, and the folder that its files are in."""

    def __init__(self, folder: Path, model: str, batch: int, threads: int):
        self.folder, self.model, self.batch, self.threads = folder, model, batch, threads

    @property
    def onnx(self) -> Path:
        return self.folder / f"{self.model}.{self.batch}.onnx"

    @property
    def arrays(self) -> Path:
        return self.folder / f"{self.model}.{self.batch}.npz"

    def library(self, engine: str) -> Path:
        return self.folder / f"{self.model}.{self.batch}.{self.threads}.{engine.replace(' ', '_')}.so"

    def inputs(self) -> list[np.ndarray]:
        return self._named("input")

    def expected(self) -> list[np.ndarray]:
        return self._named("expected")

    def _named(self, name: str) -> list[np.ndarray]:
        with np.load(self.arrays) as arrays:
            return [arrays[key] for key in arrays.files if key.startswith(name)]


def prepare(job: Job) -> dict[str, Any]:
    """Writes the network as ONNX, an input, and what torch makes of it."""
    import torch

    from bench.networks import real

    network, sample = real.network_of(job.model, job.batch)
    with torch.no_grad():
        expected = [t.numpy() for t in real.tensors(network(*sample))]
    arrays = {f"input{i}": t.numpy() for i, t in enumerate(sample)}
    np.savez(job.arrays, **arrays, **{f"expected{i}": a for i, a in enumerate(expected)})
    real.save_onnx(job.model, job.batch, job.onnx)
    return {"title": real.MODELS[job.model].title}


def serve(engine: str, job: Job, answer: Callable[[Any], None]) -> None:
    """First answers what starting took and how far the results are off, then seconds of runs, as they are asked for."""
    begun = time.perf_counter()
    run = start(engine, job)
    ready = time.perf_counter()
    results = run()
    done = time.perf_counter()
    expected = job.expected()
    off, largest = difference(expected, results), magnitude(expected)
    del results, expected
    figures = {"start seconds": done - begun, "difference": off, "magnitude": largest}
    answer(figures | {"seconds": [done - ready], "memory": _memory()})
    for line in sys.stdin:
        taken = []
        for _ in range(int(line)):
            start_of_run = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start_of_run)
        answer({"seconds": taken, "memory": _memory()})


def _memory() -> int:
    """Bytes that this process had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("prepare", "build", "serve"))
    parser.add_argument("--engine", default="")
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    job = Job(given.folder, given.model, given.batch, given.threads)
    channel = os.fdopen(os.dup(1), "w")  # what libraries print goes elsewhere
    os.dup2(2, 1)

    def answer(value: Any) -> None:
        channel.write(json.dumps(value) + "\n")
        channel.flush()

    if given.what == "prepare":
        answer(prepare(job))
    elif given.what == "build":
        answer(build(given.engine, job))
    else:
        with contextlib.suppress(BrokenPipeError):
            serve(given.engine, job, answer)


if __name__ == "__main__":
    main()
