"""Whether a host plan that was read from a file can be one.

In: a plan, and the names of the kernels beside it. Out: nothing, or ``ValueError`` or ``TypeError`` for what would be
found by whoever runs the plan, in words of the device's library, or by nobody: a number counted from the end, a tensor
that is larger than its memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from eqsat_layout.system.dtypes import numpy_dtype
from eqsat_layout.targets.gpu.host.plan import Allocation, HostPlan, Launch, TensorInMemory, TensorMap
from eqsat_layout.targets.gpu.host.sizes import Size, is_size

_MOST_BYTES: Final = 1 << 62
_TEXELS: Final = ("float32", "float16")
_MAPPED: Final = ("float16", "bfloat16")
_BYTES_MAPPED: Final = 2
"""Of an element of a tensor map."""
_MOST_GROUPS: Final = 1 << 31
"""Along an axis of a launch; fewer than that."""


def check_plan(plan: HostPlan, kernels: Collection[str]) -> None:
    """Raises for what can't be a plan of these kernels."""
    _check("constant", (m.constant for m in plan.memories if m.constant is not None), len(plan.constants))
    _check("memory", (v.memory for v in plan.values), len(plan.memories))
    _check("byte", (c.size for c in plan.constants), _MOST_BYTES)
    symbols = {symbol.name for function in plan.all_functions for symbol in function.symbols}
    for memory in plan.memories:
        _check_sizes([memory.bytes, *(memory.image or ())], symbols)
        if memory.image is not None and memory.dtype not in _TEXELS:
            raise ValueError(f"there are no images of {memory.dtype!r}")
    for value in plan.values:
        _check_sizes(value.shape, symbols)
    for function in plan.all_functions:
        copied = [*function.inputs, *function.read]
        _check("value", copied, len(plan.values))
        for number in copied:
            _check_copied(plan.values[number], plan.memories[plan.values[number].memory])
        _check("input", (s.input for s in function.symbols), len(function.inputs))
        for symbol in function.symbols:
            _check("axis", [symbol.axis], len(plan.values[function.inputs[symbol.input]].shape))
        _check_sizes([function.fits], symbols)
        for cast in function.casts:
            _check_sizes([cast.size, cast.expected], symbols)
        for launch in function.launches:
            _check_launch(launch, plan, kernels, symbols)


def _check_copied(value: TensorInMemory, memory: Allocation) -> None:
    """What the host copies is of a dtype of arrays, and fits."""
    dtype, sizes = numpy_dtype(value.dtype), (*value.shape, memory.bytes)
    if dtype.hasobject:
        raise ValueError(f"there are no tensors of {value.dtype!r}")
    is_known = memory.image is None and all(isinstance(size, int) for size in sizes)
    if is_known and math.prod(value.shape) * dtype.itemsize > memory.bytes:
        said = f"a tensor {value.dtype} {list(value.shape)}"
        raise ValueError(f"{said} is larger than its memory of {memory.bytes} bytes")


def _check_launch(launch: Launch, plan: HostPlan, kernels: Collection[str], symbols: Collection[str]) -> None:
    if launch.kernel not in kernels:
        raise ValueError(f"there is no kernel {launch.kernel!r}")
    _check("memory", (a.memory for a in launch.arguments if a.memory is not None), len(plan.memories))
    for argument in launch.arguments:
        if argument.map is not None:
            _check("memory", [argument.memory], len(plan.memories))
            _check_map(argument.map, plan.memories[argument.memory or 0], symbols)
        elif argument.memory is None:
            _check_sizes([argument.number], symbols, least=-_MOST_BYTES)
            numpy_dtype(argument.dtype)
    threads = (*launch.groups, *launch.items)
    _check_sizes([*threads, launch.shared], symbols)
    if any(size >= _MOST_GROUPS for size in threads if isinstance(size, int)):
        raise ValueError(f"kernel {launch.kernel!r} has 2^31 groups or more")


def _check_map(given: TensorMap, memory: Allocation, symbols: Collection[str]) -> None:
    """Its numbers are of the same axes, and it ends where its memory does: the driver does not know where that is."""
    _check_sizes([*given.extents, *given.strides], symbols)
    _check_sizes(given.box, (), least=1)
    if given.dtype not in _MAPPED or not len(given.extents) == len(given.strides) + 1 == len(given.box):
        raise ValueError(f"there is no map {given}")
    sizes = (*given.extents, *given.strides, memory.bytes)
    if all(isinstance(size, int) for size in sizes):
        first, *others = given.extents
        last = sum((extent - 1) * stride for extent, stride in zip(others, given.strides, strict=True))
        if last + first * _BYTES_MAPPED > memory.bytes:
            raise ValueError(f"{given} reaches beyond its memory of {memory.bytes} bytes")


def _check(what: str, numbers: Iterable[Any], count: int) -> None:
    for number in numbers:
        if type(number) is not int or not 0 <= number < count:
            raise ValueError(f"there is no {what} {number!r}")


def _check_sizes(sizes: Sequence[Size], symbols: Collection[str], least: int = 0) -> None:
    for size in sizes:
        if not is_size(size, symbols) or (isinstance(size, int) and not least <= size < _MOST_BYTES):
            raise ValueError(f"{size!r} is no size")
