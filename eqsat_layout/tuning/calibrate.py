"""The constants of the roofline, measured on this machine through the project's own kernels (targets room).

In: a target that this machine can run. Out: :class:`MachineConstants`; and the cost model of a target, with what the
database knows of it.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from tvm import relax, te, tirx

from eqsat_layout.cost.database import Constants, Database, Snapshot, now
from eqsat_layout.cost.measured import MeasuredCosts
from eqsat_layout.cost.model import CostModel, Roofline
from eqsat_layout.graph.graph import Signature
from eqsat_layout.targets.cpu.costs import default_costs
from eqsat_layout.targets.cpu.machine import machine_of
from eqsat_layout.targets.cpu.target import Progress, normalize_target
from eqsat_layout.tuning.measure import package_version
from eqsat_layout.tuning.probe import Probe, last_cache_bytes, machine_name, require_host

_CHAIN: Final = 100
_SERIAL, _PARALLEL = 16, 8192
"""Elements of the op that is nothing but its launch: with one thread; with several, more than schedules keep serial."""
_BLOCK: Final = 16


@dataclass(frozen=True)
class MachineConstants:
    """Fields of :class:`Roofline` as measured, with all ``threads`` at work: bytes, operations a second, and seconds.

    ``launch`` is what a kernel takes that has next to nothing to do, starting its threads included.
    """

    bandwidth: float
    rewrite_bandwidth: float
    flops: float
    launch: float
    threads: int

    @property
    def values(self) -> dict[str, float]:
        """The constants by the names that Roofline has for them."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "threads"}


def calibrate(target: Any = None, *, quick: bool = False, progress: Progress | None = None) -> MachineConstants:
    """Measures for about ten seconds, ``quick`` for about three. Medians of rounds in which every probe runs once.

    Raises :class:`~eqsat_layout.errors.TargetError` for a target that this machine can't run.
    """
    checked = require_host(target)
    threads = machine_of(checked).cores
    say = progress or (lambda _: None)
    launches = [_launch_probe(_SERIAL if threads == 1 else _PARALLEL, checked)]
    say("streaming")
    streams = list(_stream_probes(checked))
    say("layout transforms")
    rewrites = list(_rewrite_probes(checked, quick))
    say("convolutions")
    convolutions = list(_convolution_probes(checked, quick))
    work = [*streams, *rewrites, *convolutions]
    seconds = _interleaved([*launches, *(p.probe for p in work)], 5 if quick else 25, say)
    launch = seconds[0]
    rates = [p.work / max(s - launch, s / 2) for p, s in zip(work, seconds[1:], strict=True)]
    streaming, rewriting, computing = _split(rates, (len(streams), len(rewrites), len(convolutions)))
    return MachineConstants(
        bandwidth=max(streaming),
        rewrite_bandwidth=statistics.median(rewriting),
        flops=max(computing),
        launch=launch,
        threads=threads,
    )


def store(database: Database, constants: MachineConstants, target: Any = None) -> None:
    """Puts the constants into the database, in place of older ones; :class:`EqsatError` where it can't be written."""
    database.add(Constants(machine_name(target), constants.values, package_version(), now()))
    database.compact()


def roofline_for(target: Any = None, known: Snapshot | None = None) -> Roofline:
    """The roofline of a target, with the constants that were measured for it if there are any.

    ``known``: what the database holds; it is read from its usual place if not given.
    """
    checked = normalize_target(target)
    base = default_costs(checked)
    snapshot = Database().read() if known is None else known
    stored = snapshot.constants.get(machine_name(checked)) if snapshot.constants else None
    return base if stored is None else with_constants(base, stored.values)


def with_constants(base: Roofline, values: Mapping[str, float]) -> Roofline:
    """``base`` with the constants that it has fields for; another version may know others."""
    names = {f.name for f in dataclasses.fields(MachineConstants)} & {f.name for f in dataclasses.fields(base)}
    changed: dict[str, Any] = {name: value for name, value in values.items() if name in names}
    return dataclasses.replace(base, **changed)


def known_costs(target: Any, ops: Iterable[Signature], known: Snapshot | None = None) -> CostModel:
    """The cost model of a target: measured kernels where the database has any of them, else its roofline.

    ``ops`` are those of the program that is planned, which measured and modelled costs are compared by.
    """
    checked = normalize_target(target)
    snapshot = Database().read() if known is None else known
    roofline = roofline_for(checked, snapshot)
    if not snapshot.has_kernels:
        return roofline
    return MeasuredCosts(snapshot, roofline, machine_name(checked), package_version(), ops)


@dataclass(frozen=True)
class _Work:
    """A probe and what one of its kernels does: bytes moved, or operations."""

    probe: Probe
    work: float


def _launch_probe(elements: int, target: Any) -> Probe:
    """A chain of kernels that TVM may not fuse."""
    operand = te.placeholder((elements,), name="x")
    result = te.compute((elements,), lambda i: operand[i] + tirx.const(1.0, "float32"))
    func = te.create_prim_func([operand, result], index_dtype_override="int64").without_attr("global_symbol")
    func = func.with_attr("op_pattern", _OPAQUE)

    def emit(builder: Any, given: Sequence[Any]) -> Any:
        return relax.call_tir(builder.add_func(func, "tiny"), given[0], relax.TensorType((elements,), "float32"))

    return Probe("a tiny op", emit, [np.zeros(elements, "float32")], 4 * elements, target, chained=_CHAIN)


_OPAQUE: Final = 8
"""TVM's number for ops that are fused with nothing."""


def _stream_probes(target: Any) -> Iterator[_Work]:
    """Additions of tensors that are larger than the last cache."""
    channels = max(16, last_cache_bytes() // (4 * 512 * 512)) * 2
    x = _random(1, channels, 512, 512)
    yield _Work(_probe("add", lambda a, b: relax.op.add(a, b), [x, x], x.nbytes, target), 3 * x.nbytes)


def _rewrite_probes(target: Any, quick: bool) -> Iterator[_Work]:
    """Channels into blocks and back, of a tensor of some MB."""

    def pack(x: Any) -> Any:
        return relax.op.layout_transform(x, lambda n, c, h, w: (n, c // _BLOCK, h, w, c % _BLOCK))

    def unpack(x: Any) -> Any:
        return relax.op.layout_transform(x, lambda n, c, h, w, b: (n, c * _BLOCK + b, h, w))

    for channels, size in ((64, 112),) if quick else ((64, 112), (256, 56), (512, 28)):
        plain, packed = _random(1, channels, size, size), _random(1, channels // _BLOCK, size, size, _BLOCK)
        yield _Work(_probe("pack", pack, [plain], plain.nbytes, target), 2 * plain.nbytes)
        yield _Work(_probe("unpack", unpack, [packed], plain.nbytes, target), 2 * plain.nbytes)


def _convolution_probes(target: Any, quick: bool) -> Iterator[_Work]:
    """Convolutions in blocks of channels, without borders: what schedules do best."""

    def convolve(x: Any, w: Any) -> Any:
        layouts = {"data_layout": "NCHW16c", "kernel_layout": "OIHW16i16o", "out_layout": "NCHW16c"}
        return relax.op.nn.conv2d(x, w, **layouts)

    shapes = ((64, 56, 1), (64, 56, 3), (128, 28, 1), (128, 28, 3), (256, 56, 1))
    for channels, size, window in shapes[:2] if quick else shapes:
        blocks, wide = channels // _BLOCK, size + window - 1
        operands = [_random(1, blocks, wide, wide, _BLOCK), _random(blocks, blocks, window, window, _BLOCK, _BLOCK)]
        elements = channels * size * size
        probe = _probe(f"convolution {window}x{window}", convolve, operands, 4 * elements, target)
        yield _Work(probe, 2.0 * elements * channels * window * window)


def _probe(name: str, op: Callable[..., Any], operands: Sequence[Any], result_bytes: int, target: Any) -> Probe:
    return Probe(name, lambda _, given: op(*given), operands, result_bytes, target)


def _random(*shape: int) -> Any:
    return np.random.default_rng(0).uniform(0.5, 1.5, shape).astype("float32")


def _interleaved(probes: Sequence[Probe], rounds: int, say: Progress) -> list[float]:
    """Median seconds of each."""
    seconds: list[list[float]] = [[] for _ in probes]
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for own, probe in zip(seconds, probes, strict=True):
            own.append(probe.run())
    return [statistics.median(own) for own in seconds]


def _split(values: Sequence[float], counts: Sequence[int]) -> list[list[float]]:
    rest = iter(values)
    return [[next(rest) for _ in range(count)] for count in counts]
