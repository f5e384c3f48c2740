"""One architecture of the zoo, in a process of its own: the steps of ``bench.cpu.zoo``.

In: a folder with what was made before, a name, a number of threads. Out: a line of JSON. ``prepare`` writes the ONNX
file and an input; ``turns`` runs ours, ONNX Runtime and OpenVINO in turns; ``memory`` opens the network and runs it
twice by one of them; ``profile`` says where their time goes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.results import difference, magnitude

OWN = "eqsat_layout"
BURST, ROUNDS = 0.15, 9
"""Seconds of an engine's turn, one run at least; and turns."""
PROFILED = 15
"""Runs of which a kernel's shortest time is taken."""

Run = Callable[[], list[np.ndarray]]


class Files:
    """What is made once of an architecture."""

    def __init__(self, folder: Path, name: str):
        self.onnx, self.arrays, self.library = (folder / f"{name}.{end}" for end in ("onnx", "npz", "so"))

    def inputs(self) -> list[np.ndarray]:
        with np.load(self.arrays) as arrays:
            return [arrays[key] for key in arrays.files]


def prepare(name: str, files: Files) -> dict[str, Any]:
    """Writes the network and an input, unless they are there."""
    if not files.arrays.exists():
        import torch

        from bench.networks import real
        from bench.networks.architectures.families import network_of

        network, sample = network_of(name)
        with torch.no_grad(), real.quiet():
            torch.onnx.export(network, sample, files.onnx, dynamo=True, external_data=False, verbose=False)
        np.savez(files.arrays, **{f"input{i}": t.numpy() for i, t in enumerate(sample)})
    return {"megabytes": files.onnx.stat().st_size / 2**20}


# ---- engines -----------------------------------------------------------------------------------------------------


def _own(files: Files, threads: int) -> Run:
    import eqsat_layout

    session = eqsat_layout.Session(str(files.library))
    feed = dict(zip((i.name for i in session.inputs), files.inputs(), strict=True))
    return lambda: list(map(np.asarray, session.run(None, feed)))


def _onnxruntime(files: Files, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(files.onnx), options, providers=["CPUExecutionProvider"])
    feed = dict(zip((i.name for i in session.get_inputs()), files.inputs(), strict=True))
    return lambda: session.run(None, feed)


def _openvino(files: Files, threads: int) -> Run:
    import openvino

    config = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
    compiled = openvino.Core().compile_model(str(files.onnx), "CPU", config)
    request = compiled.create_infer_request()
    request.infer(files.inputs())

    def run() -> list[np.ndarray]:
        request.infer()
        return [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]

    return run


ENGINES: dict[str, Callable[[Files, int], Run]] = {OWN: _own, "ONNX Runtime": _onnxruntime, "OpenVINO": _openvino}


# ---- in turns ----------------------------------------------------------------------------------------------------


def turns(
    files: Files, threads: int, rounds: int, clock: Callable[[], float], engines: Sequence[str] = tuple(ENGINES)
) -> dict[str, Any]:
    """Milliseconds by engine; how far our results are from ONNX Runtime's."""
    runs = {engine: ENGINES[engine](files, threads) for engine in engines}
    wanted, got = ([np.array(a) for a in runs[engine]()] for engine in ("ONNX Runtime", OWN))
    seconds: dict[str, list[float]] = {engine: [] for engine in runs}
    for _ in range(rounds):
        for engine, run in runs.items():
            run()
            count, start, end = 0, clock(), time.perf_counter() + BURST
            while not count or time.perf_counter() < end:
                run()
                count += 1
            seconds[engine].append((clock() - start) / count)
    peers = [engine for engine in runs if engine != OWN]
    ratio = statistics.median(min(seconds[p][i] for p in peers) / seconds[OWN][i] for i in range(rounds))
    return {
        "ratio": ratio,
        "milliseconds": {engine: statistics.median(own) * 1e3 for engine, own in seconds.items()},
        "difference": difference(wanted, got) / max(magnitude(wanted), 1e-30),
    }


def memory(files: Files, threads: int, engine: str) -> dict[str, Any]:
    """Mebibytes that this process had at most, of an engine that it opened a network by and ran it twice, and seconds
    until the first result."""
    start = time.perf_counter()
    run = ENGINES[engine](files, threads)
    run()
    seconds = time.perf_counter() - start
    run()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    most = int(status["VmHWM"].split()[0])  # getrusage's begins with what the process had that started this one
    return {"mebibytes": most / 1024, "seconds": seconds}


# ---- where the time goes -----------------------------------------------------------------------------------------


def profile(files: Files, threads: int) -> dict[str, list[tuple[str, float]]]:
    """By engine, the kernels that take longest: what they are, and their microseconds."""
    engines = {OWN: _own_kernels, "ONNX Runtime": _onnxruntime_kernels, "OpenVINO": _openvino_kernels}
    return {engine: _longest(kernels(files, threads)) for engine, kernels in engines.items()}


def _longest(kernels: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    return sorted(kernels, key=lambda kernel: -kernel[1])


def _own_kernels(files: Files, threads: int) -> list[tuple[str, float]]:
    """Operands' shapes with the name."""
    import eqsat_layout
    from bench.cpu.own_kernels import timed_kernels

    session = eqsat_layout.Session(str(files.library))
    feed = dict(zip((i.name for i in session.inputs), files.inputs(), strict=True))
    timed = timed_kernels(session, feed, threads, PROFILED)
    return [(f"{kernel.name}  {kernel.operands}", kernel.microseconds) for kernel in timed]


def _onnxruntime_kernels(files: Files, threads: int) -> list[tuple[str, float]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.enable_profiling, options.profile_file_prefix = True, str(files.library.with_suffix(".profile"))
    session = onnxruntime.InferenceSession(str(files.onnx), options, providers=["CPUExecutionProvider"])
    feed = dict(zip((i.name for i in session.get_inputs()), files.inputs(), strict=True))
    for _ in range(PROFILED):
        session.run(None, feed)
    trace = Path(session.end_profiling())
    shortest: dict[str, float] = {}
    for event in json.loads(trace.read_text()):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            shapes = event["args"].get("input_type_shape", [])
            sizes = "  ".join("x".join(map(str, shape)) for own in shapes for shape in own.values())
            text = f"{event['args'].get('op_name', '')}  {sizes}  {event['name'].removesuffix('_kernel_time')}"
            shortest[text] = min(event["dur"], shortest.get(text, event["dur"]))
    trace.unlink()
    return list(shortest.items())


def _openvino_kernels(files: Files, threads: int) -> list[tuple[str, float]]:
    import openvino

    config = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
    compiled = openvino.Core().compile_model(str(files.onnx), "CPU", config | {"PERF_COUNT": True})
    request = compiled.create_infer_request()
    shortest: dict[str, float] = {}
    for _ in range(PROFILED):
        request.infer(files.inputs())
        for node in request.profiling_info:
            taken = node.real_time.total_seconds() * 1e6
            text = f"{node.node_type}  {node.exec_type}  {node.node_name}"
            shortest[text] = min(taken, shortest.get(text, taken))
    return [(text, taken) for text, taken in shortest.items() if taken]


# ---- the process -------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "turns", "memory", "profile"))
    parser.add_argument("--name", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--engine", choices=ENGINES, default=OWN, help="for memory")
    parser.add_argument("--wall", action="store_true", help="wall time, for more threads than one on an idle machine")
    options = parser.parse_args()
    channel = os.fdopen(os.dup(1), "w")  # what libraries print goes elsewhere
    os.dup2(2, 1)
    files = Files(options.folder, options.name)
    if options.what == "prepare":
        answer: Any = prepare(options.name, files)
    elif options.what == "turns":
        clock = time.perf_counter if options.wall else time.process_time
        answer = turns(files, options.threads, options.rounds, clock)
    elif options.what == "memory":
        answer = memory(files, options.threads, options.engine)
    else:
        answer = profile(files, options.threads)
    channel.write(json.dumps(answer) + "\n")
    channel.flush()


if __name__ == "__main__":
    main()
