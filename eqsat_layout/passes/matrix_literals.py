"""Small constant matrices, attached to the kernels that read them.

In: a Relax module whose ``call_tir`` calls pass constants. Out: the same, in which a PrimFunc that gets the same small,
mostly zero matrix from every call carries its elements as an attribute: the transforms of Winograd's algorithm, for
one. The operand stays, for kernels that do not use the attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, tirx

from eqsat_layout.passes.all_calls import all_calls, arguments

Elements = npt.NDArray[np.float32]

_KNOWN = "eqsat_layout.literals"
_LARGEST = 64  # elements
_REMEMBERED = 64  # functions
_ZEROS = 0.1  # of the elements, for that to be worth the trouble


def with_literals(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` with small constants known to the PrimFuncs that get no others. The input is not changed.

    Functions that are called in another way than by ``call_tir``, or by anybody from outside, stay as they are.
    """
    functions = dict(mod.functions.items())
    for callee, calls in all_calls(mod):
        given = zip(*map(arguments, calls), strict=True)
        functions[callee] = _attached(functions[callee], list(map(_common, given)))
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def knowing(func: Any, args: Sequence[Any]) -> Any:
    """``func``, which is called with ``args`` only, with small constants known to it."""
    return _attached(func, list(map(_elements, args)))


def known_operands(func: Any) -> list[int]:
    """The numbers of the parameters whose elements are known."""
    return [int(number) for number in (func.attrs.get(_KNOWN, {}) if func.attrs else {})]


def with_literals_of(part: Any, func: Any, numbers: Sequence[int]) -> Any:
    """``part`` of a ``func``, whose parameters are those of these ``numbers``, with what is known of them."""
    known = func.attrs.get(_KNOWN, {}) if func.attrs else {}
    values = {str(place): known[str(number)] for place, number in enumerate(numbers) if str(number) in known}
    return part.with_attr(_KNOWN, values) if known else part


@lru_cache(_REMEMBERED)
def literals_of(func: Any) -> tuple[tuple[Any, Elements], ...]:
    """Parameters of ``func`` (their buffers) whose elements are known. Every stage of it asks."""
    known = func.attrs.get(_KNOWN, {}) if func.attrs else {}
    found: list[tuple[Any, Elements]] = []
    for number, values in known.items():
        buffer = func.params[int(number)]
        shape = [int(extent) for extent in buffer.shape]
        found.append((buffer, np.array([float(value) for value in values], "float32").reshape(shape)))
    return tuple(found)


def _common(given: Sequence[Any]) -> Elements | None:
    """The matrix that is given everywhere."""
    first, *others = map(_elements, given)
    same = first is not None and all(other is not None and np.array_equal(first, other) for other in others)
    return first if same else None


def _elements(arg: Any) -> Elements | None:
    """Those of a small matrix in float32 with many zeros; ``None`` for anything else."""
    if not isinstance(arg, tvm.ir.GenericConst) or not isinstance(arg.ty, relax.TensorType):
        return None
    data = arg.value
    if str(data.dtype) != "float32" or not 0 < np.prod(data.shape) <= _LARGEST:
        return None
    elements = np.asarray(data.numpy())
    return elements if np.mean(elements == 0) >= _ZEROS else None


def _attached(func: Any, known: Sequence[Elements | None]) -> Any:
    values = {str(n): [float(x) for x in e.flat] for n, e in enumerate(known) if e is not None}
    return func.with_attr(_KNOWN, values) if values and isinstance(func, tirx.PrimFunc) else func
