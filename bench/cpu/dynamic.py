"""Programs of symbolic sizes beside programs made for one size, and beside ONNX Runtime.

In: names of networks. Out: a table of ratios of processor time, one thread, in turns in one process: the program with
some sizes named, at these and elsewhere. Random weights; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ["TVM_NUM_THREADS"] = "1"

import onnxruntime
import torch
from rich.console import Console
from rich.table import Table

import eqsat_layout
from bench.networks import real
from bench.results import difference, magnitude

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Network:
    """``symbols``: axes of inputs that are open, by name; ``named``: sizes that the program is specialised for."""

    make: Callable[[int], torch.nn.Module]
    inputs: Callable[[Sizes], Mapping[str, torch.Tensor]]
    axes: Mapping[str, Mapping[int, str]]
    named: Sequence[Sizes]
    others: Sequence[Sizes]


def _resnet(_layers: int) -> torch.nn.Module:
    network: torch.nn.Module = real.torchvision().models.resnet50(weights=None)
    return network


def _bert(layers: int) -> torch.nn.Module:
    real.torchvision()
    from transformers import BertConfig, BertModel

    config = BertConfig(attn_implementation="eager", return_dict=False, num_hidden_layers=layers)
    network: torch.nn.Module = BertModel(config, add_pooling_layer=False)
    return network


NETWORKS = {
    "resnet50": Network(
        _resnet,
        lambda sizes: {"x": torch.randn(sizes[0], 3, 224, 224)},
        {"x": {0: "batch"}},
        [(1,), (8,)],
        [(2,), (3,), (5,)],
    ),
    "bert": Network(
        _bert,
        lambda sizes: {"input_ids": torch.randint(0, 1000, sizes)},
        {"input_ids": {0: "batch", 1: "length"}},
        [(1, 128), (8, 64)],
        [(1, 48), (2, 100), (3, 33), (4, 128)],
    ),
}


def main() -> None:
    options = _options()
    console = Console(width=110)
    for name in options.network:
        console.print(_table(name, NETWORKS[name], options))


def _table(name: str, network: Network, options: argparse.Namespace) -> Table:
    table = Table(title=f"{name}: processor time, one thread, medians of {options.rounds} rounds in turns")
    for column in ("sizes", "named", "static, ms", "dynamic / static", "ONNX Runtime / dynamic", "difference"):
        table.add_column(column)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        _export(network, options.layers, path)
        dynamic = eqsat_layout.Session(path, shapes=_shapes(network, network.named))
        peer = _peer(path)
        for sizes in (*network.named, *network.others):
            static = eqsat_layout.Session(path, shapes=_shapes(network, [sizes]))
            feed = {key: value.numpy() for key, value in network.inputs(sizes).items()}
            runs = [partial(one.run, None, feed) for one in (static, dynamic, peer)]
            results = [run() for run in runs]
            seconds = _in_turns(runs, options.rounds)
            ratios = [statistics.median(b / a for a, b in zip(*pair, strict=True)) for pair in _pairs(seconds)]
            off = difference(results[2], results[1]) / (magnitude(results[2]) or 1.0)
            own = statistics.median(seconds[0]) * 1e3
            table.add_row(
                " x ".join(map(str, sizes)),
                "yes" if sizes in network.named else "",
                f"{own:.1f}",
                f"{ratios[0]:.2f}",
                f"{ratios[1]:.2f}",
                f"{off:.1e}",
            )
    return table


def _pairs(seconds: Sequence[Sequence[float]]) -> list[tuple[Sequence[float], Sequence[float]]]:
    static, dynamic, peer = seconds
    return [(static, dynamic), (dynamic, peer)]


def _in_turns(runs: Sequence[Callable[[], Any]], rounds: int) -> list[list[float]]:
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for found, run in zip(seconds, runs, strict=True):
            start = time.process_time()
            run()
            found.append(time.process_time() - start)
    return seconds


def _shapes(network: Network, wanted: Sequence[Sizes]) -> dict[str, list[Any]]:
    """Of each input its sizes, several where several are wanted."""
    shapes: dict[str, list[Any]] = {}
    for name, tensor in network.inputs(wanted[0]).items():
        shapes[name] = list(tensor.shape)
        for number, axis in enumerate(network.axes[name]):
            each = tuple(dict.fromkeys(sizes[number] for sizes in wanted))
            shapes[name][axis] = each if len(wanted) > 1 else each[0]
    return shapes


def _export(network: Network, layers: int, path: Path) -> None:
    torch.manual_seed(0)
    module = network.make(layers).eval()
    sample = network.inputs(network.others[-1])
    open_axes = {name: {axis: torch.export.Dim.DYNAMIC for axis in axes} for name, axes in network.axes.items()}
    with torch.no_grad(), real.quiet():
        if "x" in sample:
            real.settle(module, tuple(sample.values()))
        given = tuple(sample.values())
        torch.onnx.export(
            module,
            given,
            path,
            dynamo=True,
            dynamic_shapes=tuple(open_axes.values()),
            input_names=list(sample),
            external_data=False,
            verbose=False,
        )


def _peer(path: Path) -> Any:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", nargs="*", default=list(NETWORKS), help=f"of {', '.join(NETWORKS)}; default all")
    parser.add_argument("--layers", type=int, default=12, help="of BERT")
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


if __name__ == "__main__":
    main()
