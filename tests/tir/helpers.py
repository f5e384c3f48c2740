"""PrimFuncs as Relax legalises them, and running them in new formats beside the originals."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax, tirx

from eqsat_layout.maps import Digit, Extent, Format, IndexMap, index_map_from_names
from eqsat_layout.soundness.programs.check import unscheduled_library
from eqsat_layout.tir.flow import Flow
from eqsat_layout.tir.rewrite import relayout
from eqsat_layout.tir.signature import Computation, analyse

SYMBOLS = {"n": 3}
"""What symbolic extents are when functions run."""


def legal(build: Callable[..., Any], *operands: Any) -> Any:
    """The PrimFunc of the one Relax op in ``build(*vars)``; an operand is a shape, or ``(shape, dtype)``."""
    symbols = {name: tirx.Var(name, "int64") for name in SYMBOLS}
    params = []
    for position, operand in enumerate(operands):
        shape, dtype = operand if len(operand) == 2 and isinstance(operand[1], str) else (operand, "float32")
        sizes = [symbols.get(e, e) if isinstance(e, str) else e for e in shape]
        params.append(relax.Var(f"p{position}", relax.TensorType(sizes, dtype)))
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(build(*params)))
        builder.emit_func_output(out)
    module = relax.transform.LegalizeOps()(builder.get())
    (func,) = [f for f in module.functions.values() if isinstance(f, tirx.PrimFunc)]
    return func


def understood(func: Any) -> Computation:
    """The computation of a function that must be understood."""
    computation = analyse(func)
    assert computation is not None
    return computation


def evaluate(expr: Any, values: Mapping[Any, int]) -> int:
    """The integer that a TVM expression is, by Python's own arithmetic."""
    kind = type(expr)
    if kind is tvm.ir.Var:
        return values[expr]
    if kind is tirx.IntImm:
        return int(expr.value)
    if kind is tvm.ir.Call:
        condition, then, other = expr.args
        return evaluate(then if evaluate(condition, values) else other, values)
    a, b = evaluate(expr.a, values), evaluate(expr.b, values)
    return int(_ARITHMETIC[kind](a, b))


_ARITHMETIC: dict[Any, Callable[[int, int], int]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.FloorDiv: operator.floordiv,
    tirx.FloorMod: operator.mod,
    tirx.Div: lambda a, b: int(a / b),
    tirx.Mod: lambda a, b: a - int(a / b) * b,
    tirx.LT: operator.lt,
    tirx.Min: min,
    tirx.Max: max,
}


def named(name: str, shape: Sequence[Extent]) -> Format:
    """The format of a tensor that is ``NCHW`` (``OIHW`` for weights) in the layout ``name``."""
    index_map = index_map_from_names("OIHW" if name[0] == "O" else "NCHW", name, shape)
    assert index_map is not None
    return Format.make(index_map)


def fmt(shape: Sequence[Extent], *dims: Sequence[tuple[int, int, Extent]]) -> Format:
    """The format with these digits per physical axis."""
    return Format.make(IndexMap.make(shape, dims))


def formats_for(shape: Sequence[Extent]) -> list[Format]:
    """NHWC, NCHW4c, NCHW16c, a cycle of axes, a map that splits and one that also fuses, as far as they fit."""
    rank = len(shape)
    maps: list[IndexMap | None] = []
    if rank == 4:
        maps += [index_map_from_names("NCHW", name, shape) for name in ("NHWC", "NCHW4c", "NCHW16c")]
    maps.append(IndexMap.permutation(shape, [*range(1, rank), *range(min(rank, 1))]))
    for axis, extent in enumerate(shape):
        if isinstance(extent, int) and extent % 2 == 0:
            others = [[Digit(a, 1, e)] for a, e in enumerate(shape) if a != axis]
            high, low = Digit(axis, 2, extent // 2), Digit(axis, 1, 2)
            maps.append(IndexMap.make(shape, [*others[:1], [high], *others[1:], [low]]))
            maps.append(IndexMap.make(shape, [[low], [high, *others[-1]] if others else [high], *others[:-1]]))
            break
    return [Format.make(m) for m in dict.fromkeys(maps) if m is not None and not _fuses_symbols(m)]


def _fuses_symbols(index_map: IndexMap) -> bool:
    return any(len(row) > 1 and any(isinstance(d.extent, str) for d in row) for row in index_map.dims)


def concrete(fmt: Format) -> Format:
    """The format with numbers for symbolic extents."""

    def number(extent: Extent) -> int:
        return extent if isinstance(extent, int) else int(eval(extent, dict(SYMBOLS)))

    dims = [[Digit(a, s, number(e)) for a, s, e in row] for row in fmt.index_map.dims]
    return Format.make(IndexMap.make([number(e) for e in fmt.padded_shape], dims), padding=fmt.padding, fill=fmt.fill)


class Check(NamedTuple):
    """``original`` and ``laid``: names of functions."""

    original: str
    laid: str
    computation: Computation
    flow: Flow
    tolerance: float


class Runner:
    """Collects re-laid-out functions, builds all of them at once, and compares them with their originals."""

    def __init__(self) -> None:
        self._module: dict[str, Any] = {}
        self.checks: list[Check] = []
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []

    def add(self, func: Any, flow: Flow, tolerance: float = 0) -> Any:
        """Asks for a check of ``func`` under ``flow``; returns the re-laid-out function."""
        computation = understood(func)
        if id(func) not in self._names:
            self._kept.append(func)
            self._names[id(func)] = self._added(func)
        laid = relayout(func, computation, flow)
        self.checks.append(Check(self._names[id(func)], self._added(laid), computation, flow, tolerance))
        return laid

    def _added(self, func: Any) -> str:
        name = f"f{len(self._module)}"
        self._module[name] = func
        return name

    def check(self) -> int:
        """Runs everything; the results must agree, bit for bit without a tolerance. Returns the number of checks."""
        library = unscheduled_library(self._module)
        known: dict[str, tuple[list[Any], list[Any]]] = {}
        for original, laid, computation, flow, tolerance in self.checks:
            if original not in known:
                rng = np.random.default_rng(0)
                operands = [_random(rng, computation.buffers[n]) for n in computation.operands]
                empty = [np.zeros_like(_random(rng, computation.buffers[n])) for n in computation.results]
                known[original] = operands, called(library[original], operands, empty)
            self.compare(library[laid], flow, *known[original], tolerance, f"{original} as {laid} under {flow}")
        return len(self.checks)

    def compare(
        self, function: Any, flow: Flow, operands: list[Any], results: list[Any], tolerance: float, message: str
    ) -> None:
        """``function`` gives ``results`` of ``operands``, both in the formats of ``flow``."""
        physical = [concrete(f).lay(a) for f, a in zip(flow.operands, operands, strict=True)]
        wanted = [concrete(f).lay(a) for f, a in zip(flow.results, results, strict=True)]
        found = called(function, physical, [np.full_like(a, 1) for a in wanted])
        for a, b in zip(wanted, found, strict=True):
            np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance, err_msg=message)


def called(function: Any, operands: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """What a PrimFunc that was built writes over ``results``."""
    arguments = [tvm.runtime.tensor(a) for a in (*operands, *results)]
    function(*arguments)
    return [a.numpy() for a in arguments[len(operands) :]]


def _random(rng: np.random.Generator, buffer: Any) -> Any:
    shape = [e if isinstance(e, int) else SYMBOLS[e] for e in buffer.shape]
    if buffer.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in buffer.dtype:
        return rng.integers(0, 4, shape).astype(buffer.dtype)
    return rng.uniform(0.1, 1, shape).astype(buffer.dtype)
