"""What flows through which family of ops: ``python -m bench.planning.coverage [--family NAME ...]``.

Every family is legalised and asked to take the layouts NHWC, NCHW4c, NCHW16c, a 3-cycle of axes and a split, from its
result and from its first operand, on extents that the blocks divide and on extents that they don't (padding 0 and
undef). Every flow is run with poison in undef padding, twice, and compared with the op as it was; and the op between
rewrites to and from each layout goes through ``optimize`` as a Relax module, and is run before and after. The table
says how many layouts flow each way; the reasons of those that don't stand below it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from rich.console import Console
from rich.table import Table
from tvm import relax
from tvm.relax import op as R

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from compare import assert_same_fast
from tir.poison import PoisonRunner

import eqsat_layout
from eqsat_layout.graph.legalised_calls import legalise_calls
from eqsat_layout.graph.rewrite_form import write_relax
from eqsat_layout.graph.templates import Template
from eqsat_layout.maps import UNDEF, Digit, Format, IndexMap
from eqsat_layout.tir.flow import backward, forward, why_not
from eqsat_layout.tir.layout_rewrite import LayoutRewrite
from eqsat_layout.tir.signature import analyse

Build = Callable[..., Any]
Shape = tuple[int, ...]


def families() -> dict[str, tuple[Build, Callable[[int], list[Shape]]]]:
    """Name to the op and the shapes of its operands, given the number of channels."""

    def image(c: int) -> list[Shape]:
        return [(2, c, 6, 8)]

    def two(c: int) -> list[Shape]:
        return [(2, c, 6, 8), (2, c, 6, 8)]

    def vector(c: int, count: int) -> Callable[[int], list[Shape]]:
        return lambda c: [(2, c, 6, 8)] + [(c,)] * count

    return {
        "elementwise": (R.nn.relu, image),
        "elementwise, not 0 at 0": (R.exp, image),
        "binary": (R.add, two),
        "bias (1,C,1,1)": (R.add, lambda c: [(2, c, 6, 8), (1, c, 1, 1)]),
        "bias (C,1,1)": (R.add, lambda c: [(2, c, 6, 8), (c, 1, 1)]),
        "bias (H,W)": (R.multiply, lambda c: [(2, c, 6, 8), (6, 8)]),
        "bias ()": (R.multiply, lambda c: [(2, c, 6, 8), ()]),
        "where": (lambda x, y: R.where(R.greater(x, y), x, y), two),
        "cast": (lambda x: R.astype(x, "float16"), image),
        "sum, no keepdims": (lambda x: R.sum(x, axis=[2]), image),
        "sum over channels": (lambda x: R.sum(x, axis=[1], keepdims=True), image),
        "max over H and W": (lambda x: R.max(x, axis=[2, 3]), image),
        "mean": (lambda x: R.mean(x, axis=[2, 3], keepdims=True), image),
        "softmax over channels": (lambda x: R.nn.softmax(x, axis=1), image),
        "layer_norm": (lambda x, g, b: R.nn.layer_norm(x, g, b, axes=[-1]), lambda c: [(2, c, 6, 8), (8,), (8,)]),
        "group_norm": (
            lambda x, g, b: R.nn.group_norm(x, g, b, num_groups=2, channel_axis=1, axes=[2, 3]),
            vector(0, 2),
        ),
        "instance_norm": (lambda x, g, b: R.nn.instance_norm(x, g, b, channel_axis=1, axes=[2, 3]), vector(0, 2)),
        "max_pool2d": (lambda x: R.nn.max_pool2d(x, (2, 2), (2, 2)), image),
        "avg_pool2d, padded": (lambda x: R.nn.avg_pool2d(x, (3, 3), (1, 1), padding=(1, 1)), image),
        "conv2d": (lambda x, w: R.nn.conv2d(x, w, padding=1), lambda c: [(2, c, 6, 8), (c, c, 3, 3)]),
        "conv2d, strided": (lambda x, w: R.nn.conv2d(x, w, strides=2), lambda c: [(2, c, 6, 8), (c, c, 3, 3)]),
        "conv2d, depthwise": (
            lambda x, w: R.nn.conv2d(x, w, padding=1, groups=int(x.ty.shape[1])),
            lambda c: [(2, c, 6, 8), (c, 1, 3, 3)],
        ),
        "conv2d, grouped": (
            lambda x, w: R.nn.conv2d(x, w, padding=1, groups=2),
            lambda c: [(2, c, 6, 8), (c, c // 2, 3, 3)],
        ),
        "conv2d_transpose": (
            lambda x, w: R.nn.conv2d_transpose(x, w, strides=(2, 2)),
            lambda c: [(2, c, 6, 8), (c, c, 2, 2)],
        ),
        "conv1d": (lambda x, w: R.nn.conv1d(x, w, padding=1), lambda c: [(2, c, 8), (c, c, 3)]),
        "conv3d": (lambda x, w: R.nn.conv3d(x, w, padding=1), lambda c: [(1, c, 4, 4, 4), (c, c, 3, 3, 3)]),
        "matmul": (R.matmul, lambda c: [(4, c), (c, 8)]),
        "batched matmul": (R.matmul, lambda c: [(2, 3, 8, c), (2, 3, c, 4)]),
        "pad": (lambda x: R.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1]), image),
        "concat over channels": (lambda x, y: R.concat((x, y), axis=1), two),
        "concat over width": (lambda x, y: R.concat((x, y), axis=3), two),
        "split over channels": (lambda x: R.split(x, 2, axis=1), image),
        "slice": (lambda x: R.strided_slice(x, [2], [1], [5]), image),
        "slice, strided": (lambda x: R.strided_slice(x, [3], [0], [8], [2]), image),
        "stack": (lambda x, y: R.stack((x, y), axis=1), two),
        "permute_dims": (lambda x: R.permute_dims(x, [0, 2, 1, 3]), image),
        "reshape": (lambda x: R.reshape(x, (2, int(x.ty.shape[1]), 48)), image),
        "expand_dims": (lambda x: R.expand_dims(x, 1), image),
        "squeeze": (lambda x: R.squeeze(x, [0]), lambda c: [(1, c, 6, 8)]),
        "resize2d": (lambda x: R.image.resize2d(x, (12, 16)), image),
        "cumsum": (lambda x: R.cumsum(x, axis=1), image),
        "take": (lambda x: R.take(x, relax.const([3, 1, 1, 0], "int64"), axis=3), image),
        "batch_norm": (
            lambda x, *p: R.nn.batch_norm(x, *p, axis=1, training=False)[0],
            vector(0, 4),
        ),
        "repeat": (lambda x: R.repeat(x, 2, axis=3), image),
        "tile": (lambda x: R.tile(x, (1, 1, 2, 1)), image),
        "flip": (lambda x: R.flip(x, 3), image),
    }


def formats(shape: tuple[Any, ...]) -> Iterator[tuple[str, Format]]:
    """The layouts that are tried on a tensor of ``shape``; channels are axis 1."""
    rank = len(shape)
    if rank < 2:
        return
    yield "channels last", Format.make(IndexMap.permutation(shape, [0, *range(2, rank), 1]))
    for block in (4, 16):
        padding = [(0, -e % block) if a == 1 else (0, 0) for a, e in enumerate(shape)]
        padded = [e + hi for e, (_, hi) in zip(shape, padding, strict=True)]
        outer = [[Digit(a, block if a == 1 else 1, e // block if a == 1 else e)] for a, e in enumerate(padded)]
        index_map = IndexMap.make(padded, [*outer, [Digit(1, 1, block)]])
        for fill in (0.0, UNDEF) if padded != list(shape) else (None,):
            name = f"C{block}c" + ("" if fill is None else f" padded {fill!r}")
            yield name, Format.make(index_map, padding=padding, fill=fill)
    if rank > 2:
        yield "3-cycle", Format.make(IndexMap.permutation(shape, [1, 2, 0, *range(3, rank)]))
    half = shape[-1] // 2
    if shape[-1] % 2 == 0 and half:
        split = [[Digit(a, 1, e)] for a, e in enumerate(shape[:-1])]
        yield (
            "split",
            Format.make(
                IndexMap.make(shape, [*split[:1], [Digit(rank - 1, half, 2)], *split[1:], [Digit(rank - 1, 1, half)]])
            ),
        )


def legalised(build: Build, shapes: list[Shape]) -> list[Any]:
    """The PrimFuncs of all ops that ``build`` is made of, the last one first."""
    params = [relax.Var(f"p{i}", relax.TensorType(list(s), "float32")) for i, s in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(build(*params)))
        builder.emit_func_output(output)
    bindings = builder.finalize()["main"].body.blocks[0].bindings
    calls = [b.value for b in bindings if isinstance(b.value, relax.Call)]
    return [found.func for found in legalise_calls(calls)][::-1]


def optimized(build: Build, shapes_of: Callable[[int], list[Shape]]) -> tuple[int, int]:
    """How many modules lost rewrites, and how many there are: the op between rewrites, one function per layout."""
    better = count = 0
    for channels in (32, 30):
        shapes = shapes_of(channels)
        functions = {}
        for i, (_, fmt) in enumerate(formats(shapes[0])):
            plain = Format.row_major(fmt.shape)
            into, back = LayoutRewrite.between(fmt, plain), LayoutRewrite.between(plain, fmt.with_fill(0.0))
            if into is None or back is None:
                continue
            functions[f"layout{i}"] = _between_rewrites(build, shapes, fmt, into, back)
        for name, function in functions.items():
            mod = tvm.IRModule({name: function.with_attr("global_symbol", name)})
            plan = eqsat_layout.plan(mod)
            assert_same_fast(mod, plan.module)
            better += len(plan.transforms) < len(plan.input_transforms)
            count += 1
    return better, count


def _between_rewrites(build: Build, shapes: list[Shape], fmt: Format, into: LayoutRewrite, back: LayoutRewrite) -> Any:
    """The op on a first operand that comes in ``fmt``; a result of the operand's shape leaves in it too."""
    first = relax.Var("x", relax.TensorType([int(e) for e in fmt.physical_shape], "float32"))
    others = [relax.Var(f"p{i}", relax.TensorType(list(s), "float32")) for i, s in enumerate(shapes[1:])]
    builder = relax.BlockBuilder()
    with builder.function("main", [first, *others]):
        with builder.dataflow():
            x = _rewritten(builder, builder.emit(R.nn.relu(first)), into)
            y = builder.emit(build(x, *others))
            if isinstance(y.ty, relax.TensorType) and [int(e) for e in y.ty.shape.values] == list(fmt.shape):
                y = builder.emit(R.nn.relu(_rewritten(builder, y, back)))
            output = builder.emit_output(y)
        builder.emit_func_output(output)
    return builder.finalize()["main"]


def _rewritten(builder: Any, x: Any, rewrite: LayoutRewrite) -> Any:
    for call in write_relax(rewrite, str(x.ty.dtype)):
        x = builder.emit(Template(call).over([x]))
    return x


def covered(build: Build, shapes_of: Callable[[int], list[Shape]]) -> tuple[list[str], list[str], int]:
    """Cells of the table, reasons of refusals, and how many flows were run."""
    counts = {"backward": [0, 0], "forward": [0, 0]}
    reasons: dict[str, None] = {}
    runner = PoisonRunner()
    for channels in (32, 30):
        func = legalised(build, shapes_of(channels))[0]
        computation = analyse(func) if func is not None else None
        if computation is None:
            _, modules = optimized(build, shapes_of)
            return ["not understood", "", "", f"{modules} agree"], ["its TIR is not understood"], 0
        sides = (
            ("backward", backward, partial(why_not, computation, result=0), computation.results[0]),
            ("forward", forward, partial(why_not, computation, operand=0), computation.operands[0]),
        )
        for side, derive, refusal, number in sides:
            for name, fmt in formats(computation.buffers[number].shape):
                flows = derive(computation, 0, fmt, contractions=True)
                counts[side][0] += bool(flows)
                counts[side][1] += 1
                if not flows:
                    reasons[f"{side} {name}: {refusal(fmt, contractions=True)}"] = None
                for flow in flows:
                    runner.add(func, flow, 1e-3)
    runs = runner.check()
    better, modules = optimized(build, shapes_of)
    cells = [f"{a}/{b}" for a, b in counts.values()] + [f"{runs} agree", f"{modules} agree, {better} better"]
    return cells, list(reasons), runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    all_families = families()
    parser.add_argument("--family", nargs="+", choices=all_families, metavar="NAME", help="only these")
    options = parser.parse_args()
    table = Table(title="layouts that flow, of those tried; every flow is run with poison in the padding")
    for column in ("family", "backward", "forward", "flows run", "modules through optimize"):
        table.add_column(column)
    console = Console(width=110)
    refusals: list[str] = []
    failed = False
    with console.status("") as status:
        for name, (build, shapes_of) in all_families.items():
            if options.family and name not in options.family:
                continue
            status.update(name)
            try:
                cells, reasons, _ = covered(build, shapes_of)
            except AssertionError as error:
                failed = True
                cells, reasons = ["", "", "", "WRONG"], [str(error).strip().splitlines()[0]]
            table.add_row(name, *cells)
            refusals += [f"{name}: {reason}" for reason in reasons]
    console.print(table)
    for refusal in refusals:
        console.print(refusal, highlight=False)
    sys.exit(failed)


if __name__ == "__main__":
    main()
