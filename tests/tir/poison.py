"""Running PrimFuncs in padded formats with poison where nothing may be relied on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tvm
from tir.helpers import SYMBOLS, concrete, understood

from eqsat_layout.maps import UNDEF, Digit, Fill, Format, IndexMap, Padding
from eqsat_layout.tir.flow import Flow
from eqsat_layout.tir.rewrite import relayout

POISONS = {"f": (np.nan, 1e30), "i": (-1, 7), "u": (0, 7), "b": (0, 1)}


def padded(
    shape: Sequence[int], axis: int, block: int, fill: Fill, *, lo: int = 0, inner: bool = True, order: Any = None
) -> Format:
    """``axis`` padded by ``lo`` in front and then up to a multiple of ``block``, which goes innermost."""
    borders = [(0, 0)] * len(shape)
    borders[axis] = (lo, -(shape[axis] + lo) % block)
    return blocked(shape, borders, {axis: block} if inner else {}, fill, order=order)


def blocked(
    shape: Sequence[int],
    padding: Padding | list[tuple[int, int]],
    blocks: dict[int, int],
    fill: Fill,
    order: Any = None,
) -> Format:
    """A format with these borders; blocks of axes go innermost, in order; ``order`` permutes the outer axes."""
    extents = [e + lo + hi for e, (lo, hi) in zip(shape, padding, strict=True)]
    axes = range(len(shape)) if order is None else order
    outer = [[Digit(a, blocks.get(a, 1), extents[a] // blocks.get(a, 1))] for a in axes]
    inner = [[Digit(a, 1, b)] for a, b in blocks.items()]
    return Format.make(IndexMap.make(extents, [*outer, *inner]), padding=padding, fill=fill)


class PoisonRunner:
    """Collects re-laid-out functions, builds all at once, and runs them with NaN, then 1e30 in undef padding."""

    def __init__(self) -> None:
        self._module: dict[str, Any] = {}
        self._checks: list[tuple[Any, str, str, Any, Flow]] = []
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []

    def add(self, func: Any, flow: Flow, tolerance: float = 0) -> Any:
        """Asks for a check of ``func`` under ``flow``; returns the re-laid-out function."""
        computation = understood(func)
        if id(func) not in self._names:
            self._kept.append(func)
            self._names[id(func)] = self._added(func)
        laid = relayout(func, computation, flow)
        self._checks.append((tolerance, self._names[id(func)], self._added(laid), computation, flow))
        return laid

    def _added(self, func: Any) -> str:
        name = f"f{len(self._module)}"
        self._module[name] = func.with_attr("global_symbol", name)
        return name

    def check(self) -> int:
        """Runs everything: data must agree bit for bit (or within the tolerance), number fills exactly."""
        library = tvm.compile(tvm.IRModule(self._module), {"kind": "llvm", "opt-level": 0})
        known: dict[str, tuple[list[Any], list[Any]]] = {}
        for tolerance, original, laid, computation, flow in self._checks:
            if original not in known:
                rng = np.random.default_rng(0)
                operands = [_random(rng, computation.buffers[n]) for n in computation.operands]
                results = [np.zeros_like(_random(rng, computation.buffers[n])) for n in computation.results]
                known[original] = operands, _call(library[original], operands, results)
            operands, wanted = known[original]
            for poison in (0, 1):
                physical = [lay(concrete(f), a, poison) for f, a in zip(flow.operands, operands, strict=True)]
                empty = [np.ones_like(lay(concrete(f), a, 0)) for f, a in zip(flow.results, wanted, strict=True)]
                found = _call(library[laid], physical, empty)
                for fmt, a, b in zip(flow.results, wanted, found, strict=True):
                    compare(concrete(fmt), a, b, tolerance, f"{original} as {laid} under {flow}")
        return len(self._checks)


def lay(fmt: Format, array: Any, poison: int) -> Any:
    """The buffer of ``array``, undef padding poisoned."""
    if fmt.fill is not UNDEF:
        return fmt.lay(array)
    bits: Any = POISONS[array.dtype.kind][poison]
    if array.dtype == np.float16:
        bits = min(bits, 6e4)  # NaN stays
    bits = np.array(bits).astype(array.dtype)
    return fmt.index_map.apply(np.pad(array, fmt.padding, constant_values=bits))


def compare(fmt: Format, wanted: Any, buffer: Any, tolerance: float, message: str) -> None:
    """The data within the tolerance, a number fill exactly."""
    np.testing.assert_allclose(fmt.unlay(buffer), wanted, rtol=tolerance, atol=tolerance, err_msg=message)
    if fmt.is_padded and fmt.fill is not UNDEF:
        inverse = fmt.index_map.inverse()
        assert inverse is not None
        outside = np.pad(np.zeros(wanted.shape, bool), fmt.padding, constant_values=True)
        rim = inverse.apply(buffer)[outside]
        np.testing.assert_array_equal(rim, np.full_like(rim, fmt.fill), err_msg=f"padding: {message}")


def all_fills(fmt: Format) -> Iterator[Format]:
    """The format with the fills 0, 1 and undef."""
    for fill in (0.0, 1.0, UNDEF):
        yield fmt.with_fill(fill)


def _call(function: Any, operands: Sequence[Any], results: Sequence[Any]) -> list[Any]:
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
