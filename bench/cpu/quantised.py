"""Networks of bytes beside ONNX Runtime and OpenVINO: ``python -m bench.cpu.quantised [NAME ...]``.

Each is exported by torch and quantised by ONNX Runtime in the ways that its users have: with the extremes of random
samples (``static``: unsigned data; ``signed``; ``operators``: ONNX's quantised operators), as the data come
(``dynamic``), or its weights only, of 4 bits with a scale for 32 (``weights``: peers make bytes of the data then, at a
loss that the column of differences does not show; ours are as exact as floats). Run in turns with one thread, by
processor time; printed are the better peer's time over ours, and how far our results are from ONNX Runtime's, which
rounds some numbers the other way. Needs the dependency group ``bench``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ["TVM_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
import onnx
import torch
from onnxruntime import InferenceSession
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from rich import box
from rich.console import Console
from rich.table import Table
from torch import nn

from bench.cpu.zoo_process import ENGINES, Files, turns
from bench.networks import real
from bench.networks.architectures.families import network_of

NETWORKS = (
    "resnet18",
    "resnet50",
    "mobilenet_v2",
    "regnet_y_400mf",
    "squeezenet1_1",
    "vgg11",
    "bert_small",
    "temporal_net",
    "one_token",
)
KINDS = ("static", "signed", "operators", "dynamic", "weights")
ROUNDS = 7
SAMPLES = 2
"""Whose extremes are taken."""


class _OneToken(nn.Module):
    """The products of a language model for one token: the gated layers of a Llama."""

    def __init__(self, width: int = 1024, inner: int = 2816, layers: int = 6):
        super().__init__()
        sizes = ((width, inner), (width, inner), (inner, width))
        self.layers = nn.ModuleList(
            nn.ModuleList(nn.Linear(*size, bias=False) for size in sizes) for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for gate, up, down in self.layers:
            x = x + down(nn.functional.silu(gate(x)) * up(x))
        return x


class _Samples(CalibrationDataReader):
    """Inputs beside the one that is run."""

    def __init__(self, files: Files):
        rng, inputs = np.random.default_rng(real.SEED), files.inputs()
        names = [one.name for one in InferenceSession(files.onnx, providers=["CPUExecutionProvider"]).get_inputs()]
        self._left = iter(
            {name: rng.permutation(one.reshape(-1)).reshape(one.shape) for name, one in zip(names, inputs, strict=True)}
            for _ in range(SAMPLES)
        )

    def get_next(self) -> Any:
        return next(self._left, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NETWORKS, metavar="NAME", help="of the zoo, or of torchvision")
    parser.add_argument("--kinds", nargs="+", default=("static", "dynamic"), choices=KINDS)
    parser.add_argument("--folder", type=Path, required=True, help="for networks and libraries")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 120)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for name in options.names:
        plain = _plain(name, options.folder)
        for kind in options.kinds:
            found[name, kind] = own = _measured(plain, kind, options.rounds)
            console.print(f"{name} {kind}: {own.get('why', '') or format(own['ratio'], '.2f')}", highlight=False)
    _report(found, console)


def _plain(name: str, folder: Path) -> Files:
    """The network in floats, written unless it is there."""
    files = Files(folder, name)
    if not files.arrays.exists():
        network, sample = _network(name)
        with torch.no_grad(), real.quiet():
            torch.onnx.export(network, sample, files.onnx, dynamo=False, opset_version=17)
        np.savez(files.arrays, **{f"input{i}": t.numpy() for i, t in enumerate(sample)})
    return files


def _network(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Of this file, of the zoo, or a classifier of torchvision."""
    if name == "one_token":
        torch.manual_seed(real.SEED)
        return _OneToken().eval(), (torch.randn(1, 1, 1024),)
    try:
        return network_of(name)
    except KeyError:
        models = real.torchvision().models
        torch.manual_seed(real.SEED)
        return models.get_model(name, weights=None).eval(), (torch.randn(1, 3, 224, 224),)


def _quantised(plain: Files, kind: str, written: Path) -> None:
    if kind == "dynamic":
        quantize_dynamic(plain.onnx, written)
        return
    if kind == "weights":
        quantiser = MatMulNBitsQuantizer(onnx.load(plain.onnx), bits=4, block_size=32, is_symmetric=True)
        quantiser.process()
        quantiser.model.save_model_to_file(str(written), False)
        return
    data = QuantType.QInt8 if kind == "signed" else QuantType.QUInt8
    form = QuantFormat.QOperator if kind == "operators" else QuantFormat.QDQ
    types = {"activation_type": data, "weight_type": QuantType.QInt8}
    quantize_static(plain.onnx, written, _Samples(plain), quant_format=form, per_channel=kind == "static", **types)


def _measured(plain: Files, kind: str, rounds: int) -> dict[str, Any]:
    """Its figures, or why there are none; without OpenVINO where it does not take the network."""
    import eqsat_layout

    files = Files(plain.onnx.parent, f"{plain.onnx.stem}.{kind}")
    files.arrays = plain.arrays
    try:
        with real.quiet():
            if not files.onnx.exists():
                _quantised(plain, kind, files.onnx)
            eqsat_layout.Session(str(files.onnx)).save(files.library)
            return turns(files, 1, rounds, time.process_time, [one for one in ENGINES if _takes(one, files)])
    except Exception as error:  # of any engine: the table says so
        return {"why": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:90]}"}


def _takes(engine: str, files: Files) -> bool:
    if engine != "OpenVINO":
        return True
    try:
        ENGINES[engine](files, 1)
    except RuntimeError:  # it has no such ops
        return False
    return True


def _report(found: dict[tuple[str, str], dict[str, Any]], console: Console) -> None:
    table = Table(title="the better peer's time over ours", title_justify="left", box=box.SIMPLE_HEAD)
    for column in ("network", "quantised"):
        table.add_column(column, no_wrap=True)
    for column in ("ratio", *(f"{engine} ms" for engine in ENGINES), "difference"):
        table.add_column(column, justify="right", no_wrap=True)
    rows = {key: own for key, own in found.items() if "ratio" in own}
    for (name, kind), own in sorted(rows.items(), key=lambda item: item[1]["ratio"]):
        taken = own["milliseconds"]
        cells = [f"{taken[engine]:.3g}" if engine in taken else "" for engine in ENGINES]
        table.add_row(name, kind, f"{own['ratio']:.2f}", *cells, f"{own['difference']:.0e}")
    console.print(table)
    for (name, kind), own in found.items():
        if key := own.get("why"):
            console.print(f"[red]{name} {kind}: {key}[/]", highlight=False)
    if rows:
        ratios = [own["ratio"] for own in rows.values()]
        mean, slower = statistics.geometric_mean(ratios), sum(ratio < 1 for ratio in ratios)
        load = os.getloadavg()[0]
        console.print(f"geometric mean {mean:.2f}, {slower} of {len(ratios)} below 1; load {load:.1f}", highlight=False)


if __name__ == "__main__":
    main()
