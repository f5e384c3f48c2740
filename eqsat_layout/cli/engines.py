"""What a model's file can be run by: this package and other runtimes, each in a process of its own.

In: requests through a pipe. Out: the inputs that a model takes, results, seconds of runs; or why an engine can't run
it. Thread pools, their spinning threads and the cores that they bind to keep apart that way.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from eqsat_layout.notes import said_by
from eqsat_layout.system.suffixes import ending_of

OWN: Final = "eqsat_layout"

_BURST: Final = 0.25
"""Seconds that an engine runs for when it is its turn; one run at least."""

Shapes = Mapping[str, Sequence[Any]] | None
Run = Callable[[], list[Any]]


@dataclass(frozen=True)
class ModelEngine:
    """``suffixes`` of the files that it takes, none: whatever we read; ``package``: what it is imported as; ``start``:
    with so many threads, 0 for as many as it takes itself."""

    package: str
    suffixes: tuple[str, ...]
    start: Callable[[Path, int, Mapping[str, Any]], Run]

    def why_not(self, path: Path) -> str | None:
        """Why it can't run the file; found out without importing it."""
        if self.suffixes and ending_of(path) not in self.suffixes:
            return f"takes {' and '.join(self.suffixes)} files"
        return None if importlib.util.find_spec(self.package) else "is not installed"


def serve(name: str, path: Path, shapes: Shapes, seed: int, precision: str | None, threads: int, pipe: Any) -> None:
    """The process of an engine. Sends its inputs if it is our own, else receives them; then its results; then, whenever
    it is asked to, seconds of each run of a burst. A failure is sent as a text. ``precision`` is of our own."""
    if threads:
        os.environ["TVM_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        if name == OWN:
            run, feed = _own(path, shapes, seed, precision)
            pipe.send(feed)
        else:
            run = ENGINES[name].start(path, threads, pipe.recv())
        pipe.send([np.array(result) for result in run()])
    except Exception as error:  # whatever the engine meets is why it is left out
        pipe.send(said_by(error))
        return
    while pipe.recv():
        pipe.send(_burst(run))


def _burst(run: Run) -> list[float]:
    seconds: list[float] = []
    while sum(seconds) < _BURST:
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return seconds


def _own(path: Path, shapes: Shapes, seed: int, precision: str | None) -> tuple[Run, dict[str, Any]]:
    from eqsat_layout.session.examples import random_feed
    from eqsat_layout.session.session import Session

    session = Session(path, shapes=shapes, precision=precision)
    feed = random_feed(session.inputs, shapes, seed)
    return (lambda: session.run(None, feed)), feed


def _onnxruntime(path: Path, threads: int, feed: Mapping[str, Any]) -> Run:
    onnxruntime = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: list(session.run(None, dict(feed)))


def _openvino(path: Path, threads: int, feed: Mapping[str, Any]) -> Run:
    openvino = importlib.import_module("openvino")
    core = openvino.Core()
    model = core.read_model(str(path))
    model.reshape({name: array.shape for name, array in feed.items()})
    config: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    if threads:
        config["INFERENCE_NUM_THREADS"] = threads
    compiled = core.compile_model(model, "CPU", config)
    request = compiled.create_infer_request()

    def run() -> list[Any]:
        request.infer(dict(feed), share_inputs=True)
        return [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]

    return run


def _torch(path: Path, threads: int, feed: Mapping[str, Any]) -> Run:
    torch = importlib.import_module("torch")
    from eqsat_layout.readers.torch.programs import program_in

    if threads:
        torch.set_num_threads(threads)
    model = program_in(path).module()
    leaves_of = importlib.import_module("torch.utils._pytree").tree_leaves
    given = [torch.from_numpy(array) for array in feed.values()]

    def run() -> list[Any]:
        with torch.inference_mode():
            return [leaf.numpy() for leaf in leaves_of(model(*given))]

    return run


ENGINES: Final = {
    "onnxruntime": ModelEngine("onnxruntime", (".onnx",), _onnxruntime),
    "openvino": ModelEngine("openvino", (".onnx",), _openvino),
    "torch": ModelEngine("torch", (".pt2",), _torch),
}
