"""Steps of a plan in which every undef element holds poison.

In: the steps of a region. Out: steps that compute the same if nothing relies on undef padding: behind whatever makes a
buffer with undef padding stand two copies, one that drops the padding and one that pads with poison.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from eqsat_layout.extract.region import Region
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.graph.steps import ConstantUse, Convert, Inside, Operand, ResultPart, Run, Step, Steps
from eqsat_layout.maps import UNDEF, Format

POISONS = ("nan", "large")
"""The two kinds: NaN, or -1 for integers; and a number that no sum loses, or 7."""


def poison_of(dtype: str, kind: str) -> float | int:
    """What an undef element of ``dtype`` holds."""
    if dtype == "bool":
        return int(kind == "nan")
    if dtype.startswith("int"):
        return -1 if kind == "nan" else 7
    if dtype.startswith("uint"):
        return 0 if kind == "nan" else 7
    if kind == "nan":
        return float("nan")
    return 1e30 if dtype in ("float32", "float64", "bfloat16") else 6e4


def poisoned(region: Region, signatures: Mapping[str, Signature], kind: str) -> Steps:
    """The steps of ``region`` with poison of this kind."""
    return _Poisoner(region, signatures, kind).steps()


def has_undef(region: Region, signatures: Mapping[str, Signature]) -> bool:
    """Whether some buffer of the plan has padding that nothing may rely on."""
    poisoner = _Poisoner(region, signatures, POISONS[0])
    return any(use.format.fill is UNDEF for use in region.steps.constants()) or any(
        poisoner.stored(step) is not None for step in region.steps.steps
    )


@dataclass
class _Poisoner:
    region: Region
    signatures: Mapping[str, Signature]
    kind: str

    def __post_init__(self) -> None:
        self._defined: dict[int, Step] = {step.store: step for step in self.region.steps.steps}
        self._fresh = max(self._defined, default=-1) + 1
        self._moved: dict[int, int] = {}

    def steps(self) -> Steps:
        own = self.region.steps
        origins, steps = dict(own.origins), list[Step]()
        for step in own.steps:
            steps.append(self._reading_poison(step))
            found = self.stored(step)
            if found is None:
                continue
            ty, fmt = found
            plain, full = self._fresh, self._fresh + 1
            self._fresh += 2
            bare, filled = Format.row_major(fmt.shape), fmt.with_fill(poison_of(ty.dtype, self.kind))
            steps += [Convert(plain, step.store, ty, fmt, bare), Convert(full, plain, ty, bare, filled)]
            origins |= {plain: origins.get(step.store, -1), full: origins.get(step.store, -1)}
            self._moved[step.store] = full
        return Steps(steps, [self._operand(goal) for goal in own.goals], own.variables, origins)

    def stored(self, step: Step) -> tuple[TensorType, Format] | None:
        """The type and format of what a step makes, if it has undef padding."""
        for ty, fmt in self._specs(step):
            if ty is not None and fmt is not None and fmt.fill is UNDEF:
                return ty, fmt
        return None

    def _specs(self, step: Step) -> list[tuple[TensorType | None, Format | None]]:
        if isinstance(step, Convert):
            return [(step.type, step.after)]
        if isinstance(step, Run):
            signature = self.signatures[step.signature]
            return [] if signature.is_tuple else [(signature.results[0], step.flow.results[0] if step.flow else None)]
        if isinstance(step, ResultPart):
            made = self._defined.get(step.source) if isinstance(step.source, int) else None
            if not isinstance(made, Run):
                return []
            results = self.signatures[made.signature].results
            return [(results[step.index], made.flow.results[step.index] if made.flow else None)]
        return tensors_held(self.region, step.store) if isinstance(step, Inside) else []

    def _reading_poison(self, step: Step) -> Step:
        if isinstance(step, Run):
            return replace(step, operands=tuple(map(self._operand, step.operands)))
        if isinstance(step, Convert):
            return replace(step, source=self._moved.get(step.source, step.source))
        if isinstance(step, ResultPart | Inside):
            return replace(step, source=self._operand(step.source))
        return step

    def _operand(self, operand: Operand) -> Operand:
        if not isinstance(operand, ConstantUse):
            return self._moved.get(operand, operand)
        if operand.format.fill is not UNDEF:
            return operand
        fill = poison_of(operand.constant.dtype, self.kind)
        return ConstantUse(operand.constant, operand.format.with_fill(fill))


def tensors_held(region: Region, store: int) -> list[tuple[TensorType | None, Format | None]]:
    """What a store of the problem holds: several tensors where one is a view of the other."""
    return [(ty, fmt) for _, ty, fmt in held_tensors(region, store)]


def held_tensors(region: Region, store: int) -> list[tuple[int, Any, Any]]:
    """The same with the node of each tensor, -1 for those that only rules made."""
    places, selection = region.decoder.places, region.selection
    if store not in places or store >= len(set(places.values())):
        return []  # a store that only the steps have
    family, number, _ = places[store]
    tensors, names = selection.tensors, selection.tensors.saturated.names
    return [
        (tensors.first_node[t], tensors.types[t], names.formats.get(f)) for t, f in selection.stores[family][number]
    ]
