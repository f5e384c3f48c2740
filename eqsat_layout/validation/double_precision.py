"""Whether a difference is no more than what rounding does to the program as it is written.

In: the input module, inputs, one of its results and what a variant of the module gives for it. Out: whether stock TVM
is as far from the numbers of float64, at as many places, in the whole and in each row and channel. The program in
float64 is that of stock TVM with another type throughout; one that looks at the bits of its numbers, or calls a
library, has none. Both are built when a difference is first asked about: most modules have none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, tirx
from tvm_ffi.serialization import from_json_graph_str, to_json_graph_str

from eqsat_layout.errors import Refused
from eqsat_layout.graph.legalize import legalize
from eqsat_layout.graph.skeleton import Skeleton
from eqsat_layout.tir.intrinsics import OF_BITS, is_pure
from eqsat_layout.tir.structural import nodes_of
from eqsat_layout.validation.inputs import mapped
from eqsat_layout.validation.results import FEW, close, run_in_machine

_DOUBLE: Final = "float64"
_SINGLE: Final = ("float32", "float16", "bfloat16")
_TIMES: Final = 8.0
_PLACES: Final = 4
"""How much farther from float64 a result may be, and at how many times as many places: sums of another order."""

Results = list[npt.NDArray[Any]]


class DoublePrecision:
    """A module in stock TVM, as it is and in float64."""

    def __init__(self, mod: Any) -> None:
        self._mod = mod

    @cached_property
    def _machines(self) -> tuple[Any, Any] | None:
        try:
            written = legalize(self._mod)
            return _stock(written), _stock(in_double(written))
        except (Refused, tvm.error.InternalError, RuntimeError, ValueError, TypeError):  # what TVM can't build
            return None

    def explains(self, name: str, inputs: Sequence[Any], number: int, got: npt.NDArray[Any]) -> bool:
        """Whether result ``number`` of function ``name`` may be ``got``."""
        if self._machines is None or str(got.dtype) not in _SINGLE:
            return False
        try:
            single = run_in_machine(self._machines[0], name, inputs)[number]
            double = run_in_machine(self._machines[1], name, [mapped(value, _doubled) for value in inputs])[number]
        except (tvm.error.InternalError, RuntimeError, ValueError, TypeError):  # of the user's program, or TVM's
            return False
        return str(double.dtype) == _DOUBLE and differs_by_rounding(double, single, got)


def differs_by_rounding(double: npt.NDArray[Any], single: npt.NDArray[Any], got: npt.NDArray[Any]) -> bool:
    """Whether ``got`` is as near ``double`` as ``single`` is, up to a factor, and of its type.

    Infinities and NaN are the same ones.
    """
    if not double.shape == single.shape == got.shape or single.dtype != got.dtype:
        return False
    single, other = single.astype(_DOUBLE), got.astype(_DOUBLE)
    finite = np.isfinite(single) & np.isfinite(double)
    if not np.array_equal(single[~finite], other[~finite], equal_nan=True) or not np.isfinite(other[finite]).all():
        return False
    lost = np.where(finite, np.abs(single - np.where(finite, double, 0.0)), 0.0)
    own = np.where(finite & ~close(single.astype(got.dtype), got), np.abs(other - np.where(finite, double, 0.0)), 0.0)
    return all(map(_is_as_near, _slices(lost), _slices(own)))


def _is_as_near(lost: npt.NDArray[Any], own: npt.NDArray[Any]) -> bool:
    """For any size of an error: not many more places have that many times it."""
    allowed, found = np.sort(lost, axis=None)[::-1], np.sort(own, axis=None)[::-1]
    return bool((found <= _TIMES * allowed[np.arange(found.size) // _PLACES]).all())


def _slices(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """It all, and its rows, columns, channels, as far as they have more than a few elements."""
    yield array
    for axis in range(array.ndim if array.ndim > 1 else 0):
        if array.size >= FEW * array.shape[axis]:
            yield from np.moveaxis(array, axis, 0)


def in_double(mod: tvm.IRModule) -> tvm.IRModule:
    """A module of PrimFuncs whose floats are float64. Raises :class:`Refused` where that may mean something else."""
    for _, func in mod.functions_items():
        for node in nodes_of(func.body, tvm.ir.Call, relax.ExternFunc):
            if isinstance(node, relax.ExternFunc) or (isinstance(func, tirx.PrimFunc) and not _is_of_any_type(node)):
                raise Refused(f"{getattr(node, 'op', node)} is called")
    skeleton = Skeleton.of(mod)
    graph = json.loads(to_json_graph_str(skeleton.module))
    for node in graph["nodes"]:
        data = node.get("data")
        for key in [key for key in data if key.endswith("dtype")] if isinstance(data, dict) else ():
            data[key] = _retyped(data[key])
        if node["type"] == "DataType":
            node["data"] = _retyped(data)
    tensors = tuple(mapped(tensor, _doubled) for tensor in skeleton.tensors)
    whole: tvm.IRModule = Skeleton(from_json_graph_str(json.dumps(graph)), tensors).whole()
    return whole


def _is_of_any_type(call: Any) -> bool:
    """It means the same of float64; code from elsewhere has a type of its own."""
    name = str(getattr(call.op, "name", ""))
    return is_pure(call) and name not in OF_BITS and not name.startswith("tirx.call_")


def _retyped(dtype: Any) -> Any:
    if dtype in _SINGLE:
        return _DOUBLE
    if str(dtype).startswith(_SINGLE):
        raise Refused(f"vectors: {dtype}")
    return dtype


def _doubled(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array.astype(_DOUBLE) if str(array.dtype) in _SINGLE else array


def _stock(mod: Any) -> Any:
    return relax.VirtualMachine(tvm.compile(mod, tvm.target.Target("llvm")), tvm.cpu())
