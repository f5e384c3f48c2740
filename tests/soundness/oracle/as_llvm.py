"""What LLVM makes of functions, in several worlds at once, to compare the interpreter with."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm

from eqsat_layout.soundness.oracle.tir_interpreter import Masked
from eqsat_layout.soundness.programs.check import unscheduled_library

WORLDS = 2


class Llvm:
    """Collects functions and builds all of them at once, unscheduled."""

    def __init__(self) -> None:
        self._functions: dict[str, Any] = {}
        self._library: Any = None

    def add(self, func: Any) -> str:
        name = f"f{len(self._functions)}"
        self._functions[name] = func
        return name

    def run(self, name: str, operands: list[Any], garbage: int = 0) -> list[Any]:
        """The results, world by world; what is not written stays ``garbage``."""
        if self._library is None:
            self._library = unscheduled_library(self._functions)
        params = self._functions[name].params[len(operands) :]
        worlds = []
        for world in range(len(operands[0])):
            results = [np.full([int(e) for e in p.ty.shape], garbage, str(p.ty.dtype)) for p in params]
            tensors = [tvm.runtime.tensor(np.array(a[world])) for a in operands]
            outs = [tvm.runtime.tensor(r) for r in results]
            self._library[name](*tensors, *outs)
            worlds.append([r.numpy() for r in outs])
        return [np.stack(result) for result in zip(*worlds, strict=True)]


def arrays(func: Any, count: int, seed: int = 0) -> list[Any]:
    """Operands in several worlds."""
    rng = np.random.default_rng(seed)
    found = []
    for param in func.params[:count]:
        shape, dtype = (WORLDS, *(int(e) for e in param.ty.shape)), str(param.ty.dtype)
        if dtype == "bool" or "int" in dtype:
            found.append(rng.integers(0 if dtype == "bool" else 1, 2 if dtype == "bool" else 3, shape).astype(dtype))
        else:
            found.append(rng.uniform(0.1, 1, shape).astype(dtype))
    return found


def assert_same(found: list[Masked], wanted: list[Any], name: str, *, exact: bool = False) -> None:
    assert len(found) == len(wanted), name
    for got, expected in zip(found, wanted, strict=True):
        assert got.values.dtype == expected.dtype, name
        assert got.defined.all(), name
        tolerance = 0 if exact else 2e-3 if expected.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(got.values, expected, rtol=tolerance, atol=tolerance, err_msg=name)


def undefined_at(shape: tuple[int, ...], *points: tuple[int, ...]) -> Masked:
    """Ones in one world, not defined at ``points``."""
    defined = np.ones((1, *shape), bool)
    for point in points:
        defined[(0, *point)] = False
    return Masked(np.ones((1, *shape), "float32"), defined)
