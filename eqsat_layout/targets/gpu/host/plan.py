"""The host's part of a compiled program, as data.

In: JSON, or what :mod:`eqsat_layout.targets.gpu.host.program` finds. Out: :class:`HostPlan`: memories, tensors that
lie in them, and per function what is launched in which order. Nothing in it is code; sizes may be expressions
(:mod:`eqsat_layout.targets.gpu.host.sizes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Final

from eqsat_layout.targets.gpu.host.sizes import Size

VERSION: Final = 5

ZEROS: Final = "eqsat_layout.zeros"
"""Annotation of an allocation that kernels find full of zeros, and leave so."""


@dataclass(frozen=True)
class Allocation:
    """What is allocated. ``image``: layers, rows and columns of an array of images, or ``None`` for a buffer of
    ``bytes``. ``constant``: which of the constants it holds from the start. ``zeros``: zeros, before each launch."""

    bytes: Size
    image: tuple[Size, Size, Size] | None = None
    dtype: str = "uint8"
    constant: int | None = None
    zeros: bool = False


@dataclass(frozen=True)
class TensorInMemory:
    """A tensor that lies in memory number ``memory``, in row-major order or as the texels of its image."""

    shape: tuple[Size, ...]
    dtype: str
    scope: str
    memory: int


@dataclass(frozen=True)
class TensorMap:
    """How a kernel looks at a memory whose boxes come to shared memory by themselves (CUDA's TMA).

    Axes with the fastest first: their ``extents``; ``strides`` in bytes, of all but the first one; elements of a
    ``box`` along each. Rows of a box have 128 bytes, whose units of 16 are exchanged by the row.
    """

    dtype: str
    extents: tuple[Size, ...]
    strides: tuple[Size, ...]
    box: tuple[int, ...]


@dataclass(frozen=True)
class Argument:
    """An argument of a kernel: a memory, maybe by a ``map``, or a number of type ``dtype``."""

    memory: int | None = None
    number: Size = 0
    dtype: str = ""
    map: TensorMap | None = None


@dataclass(frozen=True)
class Launch:
    """``groups`` of ``items`` each, along x, y and z. ``op``: the PrimFunc whose kernel it is.

    ``shared``: bytes of dynamic shared memory for each group. ``overlaps``: it may start before the launch in front of
    it has ended, for which it waits by itself (CUDA's programmatic dependent launch).
    """

    kernel: str
    op: str
    arguments: tuple[Argument, ...]
    groups: tuple[Size, Size, Size]
    items: tuple[Size, Size, Size]
    shared: Size = 0
    overlaps: bool = False


@dataclass(frozen=True)
class Symbol:
    """A size that is read off axis ``axis`` of input ``input``."""

    name: str
    input: int
    axis: int


@dataclass(frozen=True)
class Cast:
    """A size that is said to be ``expected``, and ``text``, which says of what."""

    size: Size
    expected: Size
    text: str


@dataclass(frozen=True)
class Assertion:
    """Value ``value``, of one element, is true, or a run ends in an error of this ``text``."""

    value: int
    text: str


@dataclass(frozen=True)
class HostFunction:
    """``inputs`` by number of the plan's values. ``results``: a number, or a list of such.

    ``variants``: what runs in its place, the first one whose sizes fit (``fits`` is not 0), with the same arrays.
    ``symbols`` are those that its sizes hang on. ``casts``: what is checked before anything is launched, ``assertions``
    what is checked afterwards.
    """

    name: str
    inputs: tuple[int, ...]
    names: tuple[str, ...]
    symbols: tuple[Symbol, ...]
    launches: tuple[Launch, ...]
    results: Any
    casts: tuple[Cast, ...] = ()
    assertions: tuple[Assertion, ...] = ()
    fits: Size = 1
    variants: tuple[HostFunction, ...] = ()

    @property
    def read(self) -> Iterator[int]:
        """The values that the host reads when all has run."""
        yield from flattened([self.results])
        for assertion in self.assertions:
            yield assertion.value

    @property
    def all(self) -> Iterator[HostFunction]:
        """It, and its variants."""
        yield self
        for one in self.variants:
            yield from one.all

    def changed(self, change: Callable[[HostFunction], HostFunction]) -> HostFunction:
        """The plan after ``change`` of it and of its variants."""
        return replace(change(self), variants=tuple(one.changed(change) for one in self.variants))


@dataclass(frozen=True)
class StoredConstant:
    """``size`` bytes from ``start`` on in what lies beside the plan."""

    start: int
    size: int


@dataclass(frozen=True)
class HostPlan:
    """All functions of a program share memories and values."""

    memories: tuple[Allocation, ...]
    values: tuple[TensorInMemory, ...]
    constants: tuple[StoredConstant, ...]
    functions: tuple[HostFunction, ...]

    def function(self, name: str) -> HostFunction:
        """The function of this name; :class:`KeyError` where there is none."""
        for one in self.functions:
            if one.name == name:
                return one
        raise KeyError(name)

    @cached_property
    def kernels(self) -> frozenset[str]:
        """The names of those that are launched."""
        return frozenset(launch.kernel for function in self.all_functions for launch in function.launches)

    @property
    def all_functions(self) -> Iterator[HostFunction]:
        """Those that are called by name, and their variants."""
        for function in self.functions:
            yield from function.all

    @property
    def bytes(self) -> int:
        """The bytes of all memories of known size: what the program needs while it runs, constants included."""
        return sum(memory.bytes for memory in self.memories if isinstance(memory.bytes, int))

    def to_data(self) -> dict[str, Any]:
        """What :meth:`from_data` takes, for JSON."""
        return {"version": VERSION, **asdict(self)}

    @staticmethod
    def from_data(data: Any) -> HostPlan:
        """Raises ``ValueError``, ``KeyError`` or ``TypeError`` for what is none. What it says is not looked at yet."""
        if data["version"] != VERSION:
            raise ValueError(f"a host plan of version {data['version']}, not {VERSION}")
        return HostPlan(
            tuple(Allocation(**{**m, "image": m["image"] and _three(m["image"])}) for m in data["memories"]),
            tuple(TensorInMemory(**{**v, "shape": tuple(v["shape"])}) for v in data["values"]),
            tuple(StoredConstant(**c) for c in data["constants"]),
            tuple(map(_function, data["functions"])),
        )


def flattened(values: Iterable[Any]) -> Iterator[Any]:
    """What lists and tuples in each other hold, in order."""
    for one in values:
        if isinstance(one, list | tuple):
            yield from flattened(one)
        else:
            yield one


def _function(data: Any) -> HostFunction:
    return HostFunction(
        data["name"],
        tuple(data["inputs"]),
        tuple(data["names"]),
        tuple(Symbol(**s) for s in data["symbols"]),
        tuple(map(_launch, data["launches"])),
        data["results"],
        tuple(Cast(**c) for c in data["casts"]),
        tuple(Assertion(**a) for a in data["assertions"]),
        data["fits"],
        tuple(map(_function, data["variants"])),
    )


def _launch(data: Any) -> Launch:
    arguments = tuple(Argument(**{**a, "map": a["map"] and _map(a["map"])}) for a in data["arguments"])
    groups, items = _three(data["groups"]), _three(data["items"])
    return Launch(data["kernel"], data["op"], arguments, groups, items, data["shared"], bool(data["overlaps"]))


def _map(data: Any) -> TensorMap:
    return TensorMap(data["dtype"], *(tuple(data[name]) for name in ("extents", "strides", "box")))


def _three(data: Sequence[Any]) -> tuple[Any, Any, Any]:
    x, y, z = data
    return x, y, z
