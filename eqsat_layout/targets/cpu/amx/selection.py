"""Matrix products on the matrix unit, where that is faster.

In: an unscheduled PrimFunc. Out: the kernel for the unit that does what it does, if there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_layout.targets.cpu.amx.kernels import matrix_kernel
from eqsat_layout.targets.cpu.amx.over_image import over_image
from eqsat_layout.targets.cpu.amx.products import MatrixProduct, matrix_product
from eqsat_layout.targets.cpu.amx.tile_plan import TilePlan, plan_tiles
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.chain import chain_of
from eqsat_layout.targets.cpu.model.chain_model import ChainModel
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.epilogues import align_epilogues, epilogue_of, is_in_place
from eqsat_layout.targets.schedules.inlining import inline_producers, stays_small
from eqsat_layout.targets.schedules.stages import Stage, new_schedule, stages_of


@dataclass(frozen=True)
class SplitProduct:
    """A PrimFunc as a product on the matrix unit: a schedule over it, its epilogue, and the plan of its kernel."""

    sch: Any
    product: MatrixProduct
    epilogue: Stage | None
    plan: TilePlan

    def kernel(self) -> Any:
        """The PrimFunc."""
        return matrix_kernel(self.product, self.epilogue, self.sch, self.plan)


def split_product(func: Any, machine: CpuMachine, signed: str | None = None) -> SplitProduct | None:
    """``func`` as such a product; ``None`` where it is none, or faster without the unit, or the machine has none.

    ``signed``: of a kernel over words (:class:`.byte_words.WordKernel`), the name of the buffer of signed bytes.
    """
    if not (machine.matrix_unit if signed is None else machine.matrix_bytes):
        return None
    found = unless_refused(lambda: _product_of(func, machine, signed))
    return found if found is not None and _is_faster(found, machine) else None


def _product_of(func: Any, machine: CpuMachine, signed: str | None) -> SplitProduct | None:
    sch = inline_producers(new_schedule(func), _may_inline)
    sch = align_epilogues(new_schedule(sch.mod["main"]))
    first, *others = stages_of(sch)
    product, epilogue = matrix_product(sch, first, signed), epilogue_of(sch, first) if others else None
    if product is None or len(others) > 1 or (others and (epilogue is None or not is_in_place(first, epilogue))):
        return None
    ways = [product] + ([image] if (image := over_image(product)) is not None else [])
    plans = [(plan, way) for way in ways if (plan := plan_tiles(way, machine)) is not None]
    if not plans:
        return None
    plan, product = min(plans, key=lambda found: found[0].nanoseconds)
    return SplitProduct(sch, product, epilogue, plan)


def _is_faster(split: SplitProduct, machine: CpuMachine) -> bool:
    """Faster by the model of chains, which knows no good tile for some that reach half of the peak without the unit."""
    chain, model = chain_of(stages_of(split.sch)), ChainModel(machine)
    return split.plan.nanoseconds < min(model.apart(chain), model.half_peak(chain))


def _may_inline(stage: Stage, readers: Sequence[Stage]) -> bool:
    """Elementwise stages are one with others, and what is not costly with the product that reads it."""
    if any(reader.is_reduction for reader in readers):
        return len(readers) == 1 and not stage.is_costly
    return all(reader.simple and reader.domain <= stage.domain and stays_small(stage, reader) for reader in readers)
