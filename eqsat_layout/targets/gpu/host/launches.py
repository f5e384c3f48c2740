"""What one PrimFunc launches, read off its host function.

In: TIR as it is in front of TVM's calling convention: allocations, and calls of kernels with their extents. Out:
launches whose memories are numbers of the plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.gpu.host.plan import ZEROS, Argument, Launch, TensorMap
from eqsat_layout.targets.gpu.host.size_expressions import size_expression
from eqsat_layout.targets.gpu.host.sizes import Size, product

_LAUNCH: Final = "tirx.call_ffi_kernel"
_ENCODES: Final = "tirx.tensormap_encode_tiled"
_ON_STACK: Final = "tirx.tvm_stack_alloca"
_DATA: Final = "tirx.buffer_data"
_SHARED: Final = "tirx.use_dyn_shared_memory"
_OVERLAPS: Final = "tirx.use_programtic_dependent_launch"
"""Spelt as TVM spells it. It has no extent."""

Allocate = Callable[[Size, str, bool], int]
"""From a number of elements, a dtype and whether they are zeros to a new buffer's number."""


def launches_of(
    name: str, host: Any, memories: Sequence[int | None], symbols: Mapping[Any, Size], allocate: Allocate
) -> list[Launch]:
    """``memories``: of the parameters, ``None`` for numbers; ``symbols``: sizes by variable."""
    places: dict[Any, int] = {p: m for p, m in zip(host.params, memories, strict=True) if m is not None}
    maps: dict[Any, Argument] = {}
    found: list[Launch] = []
    for statement, values in _flat(name, host.body, symbols):
        if isinstance(statement, tirx.AllocBuffer):
            buffer = statement.buffer
            elements = product(size_expression(extent, values) for extent in buffer.ty.shape)
            places[buffer] = allocate(elements, str(buffer.ty.dtype), ZEROS in statement.annotations)
        elif isinstance(statement, tirx.DeclBuffer):
            places[statement.buffer] = places[_source(name, statement.data)]
        else:
            call = statement.value
            does = str(getattr(getattr(call, "op", None), "name", ""))
            if does == _ENCODES:
                maps[call.args[0]] = _mapped(name, call, places, values)
            elif does == _LAUNCH:
                found.append(_launch(name, call, places, maps, values))
            elif does != _ON_STACK and not isinstance(call, tirx.IntImm):
                raise TargetError(f"{name}: the host of a device can't do {call}")
    return found


def _flat(name: str, statement: Any, symbols: Mapping[Any, Size]) -> Iterator[tuple[Any, Mapping[Any, Size]]]:
    """All that is done, in order, with the values of variables there."""
    if isinstance(statement, tirx.SeqStmt):
        for one in statement.seq:
            yield from _flat(name, one, symbols)
    elif isinstance(statement, tirx.AttrStmt):
        yield from _flat(name, statement.body, symbols)
    elif isinstance(statement, tirx.For):
        first, count = (size_expression(one, symbols) for one in (statement.min, statement.extent))
        if not isinstance(first, int) or not isinstance(count, int):
            raise TargetError(f"{name}: the host of a device can't do a loop of {statement.extent} iterations")
        for value in range(first, first + count):
            yield from _flat(name, statement.body, {**symbols, statement.loop_var: value})
    else:
        yield statement, symbols


def _source(name: str, data: Any) -> Any:
    if isinstance(data, tvm.ir.Call) and str(getattr(data.op, "name", "")) == _DATA:
        return data.args[0]
    raise TargetError(f"{name}: the host of a device does not know the memory {data}")


def _launch(
    name: str, call: Any, places: Mapping[Any, int], maps: Mapping[Any, Argument], symbols: Mapping[Any, Size]
) -> Launch:
    said = list(map(str, call.attrs.launch_params))
    tags = [tag for tag in said if tag != _OVERLAPS]
    kernel, *given = list(call.args)
    count = len(given) - len(tags)
    extents = {tag: size_expression(extent, symbols) for tag, extent in zip(tags, given[count:], strict=True)}
    groups, items = ([extents.get(f"{kind}.{axis}", 1) for axis in "xyz"] for kind in ("blockIdx", "threadIdx"))
    arguments = tuple(maps.get(one) or _argument(name, one, places, symbols) for one in given[:count])
    shared, overlaps = extents.get(_SHARED, 0), _OVERLAPS in said
    return Launch(str(kernel.value), name, arguments, (*groups,), (*items,), shared, overlaps)


def _argument(name: str, value: Any, places: Mapping[Any, int], symbols: Mapping[Any, Size]) -> Argument:
    if isinstance(value, tvm.ir.Call):
        return Argument(memory=places[_source(name, value)])
    return Argument(number=size_expression(value, symbols), dtype=str(value.ty.dtype))


def _mapped(name: str, call: Any, places: Mapping[Any, int], symbols: Mapping[Any, Size]) -> Argument:
    rank, (_, data, *sizes) = int(call.attrs.rank), call.args
    given = iter([size_expression(one, symbols) for one in sizes])
    extents, strides, box = (tuple(itertools.islice(given, count)) for count in (rank, rank - 1, rank))
    dtype = str(call.attrs.descriptor_dtype)
    return Argument(memory=places[_source(name, data)], map=TensorMap(dtype, extents, strides, box))
