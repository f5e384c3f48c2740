"""The cost model of OpenCL devices: a roofline with a ceiling for each cache.

In: a profile. Out: :class:`ImageRoofline`, modelled seconds, and :class:`ImageTraffic`, bytes. Nothing in it was
measured on a phone: it compares plans by what they move through which cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eqsat_layout.cost.model import RESULT, dtype_bytes
from eqsat_layout.cost.touched_memory import padded_work
from eqsat_layout.cost.traffic import TrafficCosts
from eqsat_layout.cost.vectorise import heaviest
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.maps import GLOBAL, Format, Formats
from eqsat_layout.targets.opencl.free_padding import has_guards
from eqsat_layout.targets.opencl.profiles import Profile
from eqsat_layout.targets.opencl.traffic import Traffic, traffic_of, traffic_of_copy
from eqsat_layout.tir.computation import Computation

_LANES: Final = 4
_SCALAR: Final = 0.25
"""Of peak, where lanes of a vector lie apart: they are loaded and stored one by one."""
_GUARDED: Final = 1.15
"""How many times the arithmetic takes where each read asks first whether it is inside (assumed)."""
_BESIDE: Final = 0.25
"""Of what takes less time than the slowest, so much is not hidden behind it (assumed)."""
_NAMED: Final = 1e-10
"""Seconds against calling a tensor an image that lies in registers only: else two plans are as good."""
_PERMUTING: Final = 0.5
"""Of the bandwidth is left to a copy that permutes (assumed)."""


@dataclass(frozen=True)
class ImageRoofline:
    """A :class:`~eqsat_layout.cost.model.CostModel`."""

    profile: Profile

    def run(self, op: Signature, operands: Formats, results: Formats, *, fused: frozenset[int] = frozenset()) -> float:
        """Memory, L2 and L1 cache and arithmetic, mostly at the same time, and the launch of a kernel."""
        if op.parts:
            return 0.0
        moved = traffic_of(op, operands, results, self.profile, fused)
        launch = 0.0 if any(i >= 0 for i in fused) else self.profile.launch
        named = sum(self._is_image(i, operands, results) for i in fused)
        return launch + named * _NAMED + self._seconds(moved, self._arithmetic(op, operands, results))

    def convert(self, tensor: TensorType, source: Format, target: Format, *, fused: bool = False) -> float:
        """A kernel of its own, or a kernel beside it that stores or loads in another order, whatever the memories."""
        size = dtype_bytes(tensor.dtype)
        if fused:
            before, after = source.elements() * size, target.elements() * size
            permuting = 1.0 if source.index_map.flat_digits == target.index_map.flat_digits else _PERMUTING
            return max(0.0, max(before, after) / permuting - before) / self.profile.memory
        copied = self._seconds(traffic_of_copy(source, target, size, self.profile))
        return self.profile.launch + copied / _PERMUTING

    def constant(self, tensor: TensorType, fmt: Format) -> float:
        """Read from memory once, cold."""
        return fmt.elements() * dtype_bytes(tensor.dtype) / self.profile.memory

    def share(self, computation: Computation, operands: Formats, results: Formats) -> float:
        """The share of peak arithmetic, by how the lanes of vectors lie."""
        heavy = heaviest(computation, operands, results)
        return _SCALAR if heavy is None else max(_SCALAR, heavy.efficiency(_LANES))

    @staticmethod
    def _is_image(place: int, operands: Formats, results: Formats) -> bool:
        fmt = (results if place == RESULT else operands)[0 if place == RESULT else place]
        return fmt is not None and fmt.scope != GLOBAL

    def _seconds(self, moved: Traffic, arithmetic: float = 0.0) -> float:
        """The slowest part, plus a share of the others: of equally fast plans the one that moves least is best."""
        loads = moved.loads_of_images * self.profile.image_slowdown + moved.loads_of_buffers
        beyond = moved.images * self.profile.image_slowdown + moved.buffers
        parts = (moved.memory / self.profile.memory, beyond / self.profile.l2, loads / self.profile.l1, arithmetic)
        return max(parts) + _BESIDE * (sum(parts) - max(parts))

    def _arithmetic(self, op: Signature, operands: Formats, results: Formats) -> float:
        computation = op.computation
        if computation is None or not computation.flops:
            return 0.0
        share = self.share(computation, operands, results)
        is_half = all(ty is None or dtype_bytes(ty.dtype) <= 2 for ty in op.results)
        peak = self.profile.flops * (2 if is_half and self.profile.has_f16 else 1)
        guarded = _GUARDED if has_guards(computation, operands, self.profile) else 1.0
        return computation.flops * padded_work(computation, operands, results) * guarded / (peak * share)


@dataclass(frozen=True)
class ImageTraffic(TrafficCosts):
    """Bytes that come from beyond the L1 cache, which keeps images, or buffers, or both, or that are written."""

    profile: Profile

    def moved(self, op: Signature, operands: Formats, results: Formats, fused: frozenset[int]) -> float:
        return traffic_of(op, operands, results, self.profile, fused).beyond

    def copied(self, source: Format, target: Format, element_bytes: float) -> float:
        return traffic_of_copy(source, target, element_bytes, self.profile).beyond
