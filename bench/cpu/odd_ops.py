"""Single ops that no family of kernels was made for, beside ONNX Runtime, OpenVINO and the time that their bytes take.

``python -m bench.cpu.odd_ops [NAME ...]``: each is exported by torch as an ONNX file, compiled as users do, and run in
turns with one thread, by processor time. Printed are the better peer's time over ours, and our time over the bound:
operands read once and results written once, at the bandwidth of the cache that holds them. Needs the dependency group
``bench``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ["TVM_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn import functional as F

from bench.cpu.zoo_process import ENGINES, OWN, Files, turns
from bench.networks import real

ROUNDS = 5
CALL = 8e-6
"""Seconds of a call of a network of one kernel, beside the kernel."""

Function = Callable[..., Any]
Case = tuple[str, Function, Sequence[tuple[int, ...]]]


class _Module(nn.Module):
    """A function as a module."""

    def __init__(self, function: Function):
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def _moves() -> Iterator[Case]:
    """What computes nothing."""
    image, rows = (1, 64, 96, 96), (512, 700)
    yield "pixel_shuffle 2", lambda x: F.pixel_shuffle(x, 2), [image]
    yield "pixel_shuffle 3", lambda x: F.pixel_shuffle(x, 3), [(1, 36, 99, 99)]
    yield "pixel_shuffle 4", lambda x: F.pixel_shuffle(x, 4), [(1, 48, 60, 60)]
    yield "pixel_unshuffle 2", lambda x: F.pixel_unshuffle(x, 2), [image]
    yield "pixel_unshuffle 4", lambda x: F.pixel_unshuffle(x, 4), [(1, 3, 256, 256)]
    yield "focus", _focus, [(1, 3, 320, 320)]
    yield "channel_shuffle", lambda x: x.view(1, 4, 16, 96, 96).transpose(1, 2).flatten(1, 2), [image]
    yield "interleave", lambda x, y: torch.stack((x, y), -1).flatten(-2), [rows, rows]
    yield "deinterleave", lambda x: (x[..., ::2], x[..., 1::2]), [rows]
    yield "rotary halves", lambda x: torch.cat((-x[..., 32:], x[..., :32]), -1), [(1, 8, 512, 64)]
    yield "rotary pairs", _rotary, [(1, 8, 256, 64), (256, 32), (256, 32)]
    yield "roll", lambda x: torch.roll(x, (3, 3), (1, 2)), [(1, 56, 56, 96)]
    yield "roll last", lambda x: torch.roll(x, 5, -1), [rows]
    yield "flip last", lambda x: x.flip(-1), [rows]
    yield "flip rows", lambda x: x.flip(2), [image]
    yield "tile", lambda x: x.repeat(1, 4, 1, 1), [(1, 16, 96, 96)]
    yield "repeat_interleave", lambda x: x.repeat_interleave(2, -1), [rows]
    yield "repeat_interleave 1", lambda x: x.repeat_interleave(4, 1), [(1, 16, 96, 96)]
    yield "windows", lambda x: x.view(1, 8, 7, 8, 7, 96).transpose(2, 3).reshape(-1, 49, 96), [(1, 56, 56, 96)]
    yield (
        "windows first",
        lambda x: x.view(1, 96, 8, 7, 8, 7).permute(0, 2, 4, 3, 5, 1).flatten(1, 2),
        [(1, 96, 56, 56)],
    )
    yield "heads", lambda x: x.view(1, 196, 3, 6, 64).permute(2, 0, 3, 1, 4), [(1, 196, 1152)]
    yield "transpose 3d", lambda x: x.permute(0, 4, 2, 3, 1), [(1, 12, 32, 32, 20)]
    yield "transpose odd", lambda x: x.transpose(1, 2), [(1, 333, 517)]
    yield "reflect pad", lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect"), [image]
    yield "replicate pad", lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"), [image]
    yield "pad last", lambda x: F.pad(x, (3, 2)), [rows]
    yield "unfold", lambda x: F.unfold(x, 3, padding=1), [(1, 16, 56, 56)]
    yield "concat odd", lambda x, y, z: torch.cat((x, y, z), -1), [(512, 31), (512, 65), (512, 129)]
    yield "triu", lambda x: x.triu(), [(8, 200, 200)]
    yield "diagonal mask", lambda x: x.masked_fill(torch.ones(200, 200).triu(1).bool(), -1e9), [(8, 200, 200)]


def _focus(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[..., i::2, j::2] for j in range(2) for i in range(2)], 1)


def _rotary(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cosines - odd * sines, even * sines + odd * cosines), -1).flatten(-2)


def _gathers() -> Iterator[Case]:
    """What reads or writes where another tensor says."""
    table, rows = (1000, 128), (512, 700)
    yield "embedding", lambda t, x: F.embedding(_places(x, 1000), t), [table, (4, 128)]
    yield "bag sum", lambda t, x: F.embedding(_places(x, 1000), t).sum(1), [table, (64, 20)]
    yield "bag max", lambda t, x: F.embedding(_places(x, 1000), t).amax(1), [table, (64, 20)]
    yield "gather last", lambda x, i: x.gather(-1, _places(i, 700)), [rows, rows]
    yield "gather rows", lambda x, i: x.gather(0, _places(i, 512)), [rows, (128, 700)]
    yield "gather_nd", lambda x, i, j: x[_places(i, 512), _places(j, 700)], [rows, (4096,), (4096,)]
    yield "index_select 1", lambda x, i: x[:, _places(i, 64)], [(1, 64, 96, 96), (48,)]
    yield "index_select last", lambda x: x[..., torch.arange(0, 700, 3)], [rows]
    yield "scatter", lambda x, i, s: x.scatter(1, _places(i, 700), s), [rows, (512, 100), (512, 100)]
    yield "one_hot", lambda x: F.one_hot(_places(x, 100), 100).float(), [(4096,)]
    yield "relative bias", lambda t, i: t[_places(i, 169)].view(49, 49, 8).permute(2, 0, 1), [(169, 8), (2401,)]
    yield "grid_sample", _sampled, [(1, 32, 64, 64), (1, 64, 64, 2)]


def _places(x: torch.Tensor, count: int) -> torch.Tensor:
    return (x.abs() * 1000).long() % count


def _sampled(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    return F.grid_sample(x, torch.tanh(grid), align_corners=False)


def _reductions() -> Iterator[Case]:
    image, rows = (1, 64, 96, 96), (512, 700)
    for name in ("sum", "mean", "amax", "std", "var", "argmax", "prod"):
        yield f"{name} middle", lambda x, n=name: getattr(x, n)(1), [(16, 64, 300)]
        yield f"{name} last", lambda x, n=name: getattr(x, n)(-1), [rows]
    yield "sum first", lambda x: x.sum(0), [rows]
    yield "sum 0 and 2", lambda x: x.sum((0, 2)), [(16, 64, 300)]
    yield "argmax first", lambda x: x.argmax(0), [rows]
    yield "norm", lambda x: F.normalize(x, dim=1), [image]
    yield "norm last", lambda x: F.normalize(x, dim=-1), [rows]
    yield "logsumexp", lambda x: x.logsumexp(-1), [rows]
    yield "cumsum last", lambda x: x.cumsum(-1), [rows]
    yield "cumsum first", lambda x: x.cumsum(0), [rows]
    yield "softmax channels", lambda x: x.softmax(1), [(1, 21, 128, 128)]
    yield "log_softmax channels", lambda x: x.log_softmax(1), [(1, 21, 128, 128)]
    yield "softmax first", lambda x: x.softmax(0), [rows]
    yield "softmax small", lambda x: x.softmax(-1), [(4096, 9)]
    yield "layer_norm 3 axes", lambda x: F.layer_norm(x, x.shape[1:]), [(4, 32, 48, 48)]
    yield "layer_norm channels", lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (64,)).permute(0, 3, 1, 2), [image]
    yield "rms_norm", _rms, [(1, 197, 768)]
    yield "instance_norm", lambda x: F.instance_norm(x), [image]
    yield "group_norm", lambda x: F.group_norm(x, 8), [(2, 64, 63, 63)]
    yield "lrn", lambda x: F.local_response_norm(x, 5), [(1, 64, 55, 55)]
    yield "topk", lambda x: (*torch.topk(x, 5),), [rows]
    yield "sort", lambda x: (*torch.sort(x),), [rows]
    yield "mean and std", lambda x: torch.cat((x.mean((2, 3)), x.std((2, 3))), 1), [image]
    yield "gram", lambda x: x.flatten(2) @ x.flatten(2).transpose(1, 2), [(1, 64, 48, 48)]


def _rms(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def _windows() -> Iterator[Case]:
    image = (1, 64, 57, 57)
    yield "max_pool 3", lambda x: F.max_pool2d(x, 3, 2, 1), [image]
    yield "max_pool 5", lambda x: F.max_pool2d(x, 5, 1, 2), [image]
    yield "max_pool dilated", lambda x: F.max_pool2d(x, 5, 1, 2, dilation=2), [image]
    yield "max_pool 1d", lambda x: F.max_pool1d(x, 4), [(4, 64, 2000)]
    yield "max_pool 3d", lambda x: F.max_pool3d(x, 2), [(1, 16, 16, 56, 56)]
    yield "avg_pool 2", lambda x: F.avg_pool2d(x, 2), [(1, 64, 96, 96)]
    yield "avg_pool ceil", lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True), [image]
    yield "avg_pool 7", lambda x: F.avg_pool2d(x, 7, 1, 3), [(1, 32, 56, 56)]
    yield "adaptive 5x7", lambda x: F.adaptive_avg_pool2d(x, (5, 7)), [image]
    yield "adaptive max 6", lambda x: F.adaptive_max_pool2d(x, 6), [(1, 64, 48, 48)]
    yield "bilinear 2", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [(1, 32, 64, 64)]
    yield "bilinear odd", lambda x: F.interpolate(x, (113, 75), mode="bilinear", align_corners=True), [(1, 32, 40, 40)]
    yield "bilinear down", lambda x: F.interpolate(x, (40, 40), mode="bilinear"), [(1, 32, 113, 75)]
    yield "bicubic 2", lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), [(1, 8, 64, 64)]
    yield "nearest 2", lambda x: F.interpolate(x, scale_factor=2), [(1, 64, 64, 64)]
    yield "nearest 3", lambda x: F.interpolate(x, scale_factor=3), [(1, 32, 50, 50)]
    yield "linear 1d", lambda x: F.interpolate(x, scale_factor=4, mode="linear"), [(1, 64, 1000)]
    yield "trilinear", lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), [(1, 8, 12, 24, 24)]


def _elementwise() -> Iterator[Case]:
    rows = (512, 700)
    yield "where broadcast", lambda x, y: torch.where(x > 0, y, x * 2), [rows, (512, 1)]
    yield "compare", lambda x, y: (x > y) & (x > 0), [rows, rows]
    yield "int32", lambda x, y: (x.int() * 3 + y.int()) // 2, [rows, rows]
    yield "int64", lambda x, y: x.long() * 3 + y.long(), [rows, rows]
    yield "half", lambda x, y: (x.half() * y.half() + 1).float(), [rows, rows]
    yield "int8", lambda x: (x * 10).clamp(-128, 127).to(torch.int8), [rows]
    yield "broadcast middle", lambda x, y: x * y, [(16, 64, 300), (16, 1, 300)]
    yield "broadcast outer", lambda x, y: x[:, :, None] - y[:, None], [(8, 200, 1), (8, 200, 1)]
    yield "distances", lambda x, y: (x[:, None] - y[None]).pow(2).sum(-1), [(200, 64), (200, 64)]
    yield "glu", lambda x: F.glu(x, 1), [(1, 64, 96, 96)]
    yield "glu last", lambda x: F.glu(x, -1), [rows]
    yield "swiglu", lambda x, y: F.silu(x) * y, [rows, rows]
    yield "mish", F.mish, [rows]
    yield "softplus", F.softplus, [rows]
    yield "gelu tanh", lambda x: F.gelu(x, approximate="tanh"), [rows]
    yield "elu", F.elu, [rows]
    yield "sin cos", lambda x: torch.cat((x.sin(), x.cos()), -1), [rows]
    yield "pow", lambda x: x.abs() ** 1.7, [rows]
    yield "log exp sqrt", lambda x: (x.exp() + 1).log().sqrt(), [rows]
    yield "round floor mod", lambda x: x.round() + x.floor() + torch.remainder(x, 3.0), [rows]
    yield "erf", torch.erf, [rows]
    yield "atan", torch.atan, [rows]


def _products() -> Iterator[Case]:
    yield "einsum 5 axes", lambda x, y: torch.einsum("bhwgc,gcd->bhwgd", x, y), [(2, 14, 14, 8, 32), (8, 32, 48)]
    yield "einsum attention", lambda x, y: torch.einsum("bqhd,bkhd->bhqk", x, y), [(2, 128, 8, 32), (2, 128, 8, 32)]
    yield "einsum outer", lambda x, y: torch.einsum("bci,bcj->bij", x, y), [(4, 64, 100), (4, 64, 100)]
    yield "einsum middle", lambda x, y: torch.einsum("nctv,vw->nctw", x, y), [(1, 64, 100, 25), (25, 25)]
    yield "bilinear form", lambda x, w, y: torch.einsum("bi,oij,bj->bo", x, w, y), [(32, 64), (16, 64, 64), (32, 64)]
    yield "batch vector", lambda x, y: (x * y).sum(-1), [(8, 512, 64), (8, 512, 64)]
    yield "matrix vector", lambda x, y: x @ y, [(64, 100, 100), (64, 100, 1)]
    yield "small squares", lambda x, y: x @ y, [(2000, 4, 4), (2000, 4, 4)]
    yield "dense batch 8", lambda x, w: x @ w, [(8, 1280), (1280, 1000)]
    yield "outer product", lambda x, y: x.unsqueeze(-1) * y.unsqueeze(-2), [(64, 64), (64, 64)]
    yield "conv_transpose 3", lambda x, w: F.conv_transpose2d(x, w, stride=3), [(1, 32, 40, 40), (32, 16, 3, 3)]
    yield "conv_transpose 1d", lambda x, w: F.conv_transpose1d(x, w, stride=4, padding=2), [(1, 64, 500), (64, 32, 8)]
    yield "conv3d separable", lambda x, w: F.conv3d(x, w, padding=(1, 0, 0)), [(1, 32, 8, 28, 28), (32, 32, 3, 1, 1)]


def _large_images() -> Iterator[Case]:
    """Rows a power of two apart share few sets of a cache, and what the last level does not hold is read again."""
    for inputs, outputs, size in ((64, 64, 128), (256, 19, 128), (128, 128, 256), (64, 32, 512)):
        yield f"large pointwise {inputs} to {outputs}", nn.Conv2d(inputs, outputs, 1), [(1, inputs, size, size)]
    yield "large conv_transpose 2", nn.ConvTranspose2d(64, 32, 2, 2), [(1, 64, 128, 128)]
    yield "large conv_transpose 4", nn.ConvTranspose2d(128, 64, 4, 2, 1), [(1, 128, 64, 64)]
    yield "large frames", nn.Conv3d(64, 64, (7, 1, 1), (2, 1, 1), (3, 0, 0)), [(1, 64, 16, 112, 112)]
    yield "large group_norm", nn.Sequential(nn.GroupNorm(8, 64), nn.SiLU()), [(1, 64, 57, 57)]
    heads = (1, 12, 512, 64)
    yield "large attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [heads, heads, heads]


GROUPS = (_moves, _gathers, _reductions, _windows, _elementwise, _products, _large_images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="ops, or what their names begin with; default: all")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args()
    wanted = (
        case for group in GROUPS for case in group() if not options.names or case[0].startswith(tuple(options.names))
    )
    run_all(wanted, options.rounds, options.json)


def run_all(cases: Iterable[Case], rounds: int, file: Path | None) -> None:
    """Prints the figures of all, each as soon as it is known; they are in ``file`` too."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    found: dict[str, dict[str, Any] | str] = {}
    for name, function, shapes in cases:
        found[name] = own = _measured(function, shapes, rounds)
        text = own if isinstance(own, str) else f"{own['ratio']:.2f}, {own['of bound']:.1f} times the bound"
        console.print(f"{name}: {text}", highlight=False)
        if file:
            file.write_text(json.dumps(found, indent=1))
    _report(found, console)


def _measured(function: Function, shapes: Sequence[tuple[int, ...]], rounds: int) -> dict[str, Any] | str:
    """Its figures, or the first line of what torch, ours or a peer says against it."""
    import eqsat_layout

    torch.manual_seed(real.SEED)
    sample = tuple(torch.randn(shape) for shape in shapes)
    with tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder), "op")
        try:
            with torch.no_grad(), real.quiet():
                results = list(real.tensors(_Module(function)(*sample)))
                torch.onnx.export(_Module(function), sample, files.onnx, dynamo=True, verbose=False)
            np.savez(files.arrays, **{f"input{i}": t.numpy() for i, t in enumerate(sample)})
            eqsat_layout.Session(str(files.onnx)).save(files.library)
            own = turns(files, 1, rounds, time.process_time)
        except Exception as error:  # of any engine: the table says so
            return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:90]}"
    size = sum(t.numel() * t.element_size() for t in (*sample, *results))
    return own | {"of bound": own["milliseconds"][OWN] / 1e3 / (CALL + size / _bandwidth(size))}


def _bandwidth(size: int) -> float:
    """Bytes a second of one core for a working set of ``size``."""
    from eqsat_layout.targets.registry import target

    own: Any = target()
    machine = own.machine
    is_small = size <= machine.l2_working_set
    return float(machine.l2_bytes_per_cycle * machine.clock / 2 if is_small else machine.last_level_bandwidth)


def _report(found: dict[str, dict[str, Any] | str], console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("op", "ratio", "of bound", *(f"{engine} us" for engine in ENGINES), "difference"):
        table.add_column(column, justify="left" if column == "op" else "right", no_wrap=True)
    rows = {name: own for name, own in found.items() if not isinstance(own, str)}
    for name, own in sorted(rows.items(), key=lambda item: -item[1]["of bound"]):
        taken = (f"{own['milliseconds'][engine] * 1e3:.3g}" for engine in ENGINES)
        table.add_row(name, f"{own['ratio']:.2f}", f"{own['of bound']:.1f}", *taken, f"{own['difference']:.0e}")
    console.print(table)
    if rows:
        ratio = math.exp(sum(math.log(own["ratio"]) for own in rows.values()) / len(rows))
        console.print(
            f"geometric mean {ratio:.2f}; {sum(own['of bound'] > 2 for own in rows.values())} of {len(rows)}"
            " take more than twice the bound"
        )


if __name__ == "__main__":
    main()
