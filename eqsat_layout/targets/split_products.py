"""Matrix products on the matrix unit, where that is faster (targets room).

In: a Relax module of ``call_tir`` calls, fused but not scheduled. Out: the same, in which products with constant
weights are kernels of :mod:`matrix_kernels`, their weights packed for these once and for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from eqsat_layout.targets.base import Machine
from eqsat_layout.targets.epilogues import align_epilogues, epilogue_of, is_in_place
from eqsat_layout.targets.fold import fold_constants
from eqsat_layout.targets.functions import expand_functions
from eqsat_layout.targets.inlining import inline_producers
from eqsat_layout.targets.matrix_kernels import (
    LANES,
    TilePlan,
    matrix_kernel,
    packed_shape,
    packed_weights,
    plan_tiles,
)
from eqsat_layout.targets.matrix_products import MatrixProduct, matrix_product
from eqsat_layout.targets.merged import tir_call
from eqsat_layout.targets.nests import NestModel, chain_of
from eqsat_layout.targets.schedule import scheduled
from eqsat_layout.targets.stages import Stage, new_schedule, stages_of


def split_products(mod: tvm.IRModule, machine: Machine) -> tvm.IRModule:
    """``mod`` with such kernels; ``mod`` itself where there are none or the machine has no matrix unit."""
    if not machine.matrix_unit:
        return mod
    builder = relax.BlockBuilder(mod)
    changed = _Changer(mod, machine, builder)
    for name, function in mod.functions.items():
        if isinstance(function, relax.Function):
            builder.update_func(name, changed.visit_expr(function))
    if not any(changed.made.values()):
        return mod
    return fold_constants(relax.transform.DeadCodeElimination()(builder.get()))


@dataclass(frozen=True)
class _Made:
    """The variables of a kernel and of the PrimFunc that packs its weights, their number, and their type then."""

    kernel: Any
    packer: Any
    weights: int
    packed: Any


@relax.expr_functor.mutator
class _Changer(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, machine: Machine, builder: Any) -> None:
        super().__init__(mod)
        self.mod, self.machine, self.builder = mod, machine, builder
        self.made: dict[Any, _Made | None] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        call = tir_call(binding.value)
        value = None if call is None else self._changed(*call, binding.value.ty)
        super().visit_var_binding_(binding if value is None else relax.VarBinding(binding.var, value))

    def _changed(self, callee: Any, args: tuple[Any, ...], ty: Any) -> Any:
        if callee not in self.made:
            self.made[callee] = self._make(self.mod[callee], callee.name_hint)
        made = self.made[callee]
        if made is None or not isinstance(args[made.weights], tvm.ir.GenericConst):
            return None
        packed = self.builder_.emit(relax.call_tir(made.packer, relax.Tuple([args[made.weights]]), made.packed))
        given = [packed if number == made.weights else arg for number, arg in enumerate(args)]
        return relax.call_tir(made.kernel, relax.Tuple(given), ty)

    def _make(self, func: Any, name: str) -> _Made | None:
        split = split_product(func, self.machine) if isinstance(func, tirx.PrimFunc) else None
        if split is None:
            return None
        kernel = self.builder.add_func(split.kernel(), name)
        packer = self.builder.add_func(split.packer(), f"{name}_weights")
        return _Made(kernel, packer, split.weights, relax.TensorType(packed_shape(split.product), "uint32"))


@dataclass(frozen=True)
class SplitProduct:
    """A PrimFunc as a product on the matrix unit: a schedule over it, its epilogue, and the plan of its kernel."""

    sch: Any
    product: MatrixProduct
    epilogue: Stage | None
    plan: TilePlan

    @property
    def weights(self) -> int:
        """The number of the weights among the parameters."""
        buffer = self.product.weights.load.buffer
        return next(n for n, param in enumerate(self.sch.mod["main"].params) if param.same_as(buffer))

    def kernel(self) -> Any:
        """The PrimFunc that takes packed weights."""
        kernel = matrix_kernel(self.product, self.epilogue, self.sch.mod["main"], self.sch, self.plan)
        return scheduled(expand_functions(kernel)).without_attr("global_symbol")

    def packer(self) -> Any:
        """The PrimFunc that packs them."""
        return packed_weights(self.product, self.sch.mod["main"].attrs).without_attr("global_symbol")


def split_product(func: Any, machine: Machine) -> SplitProduct | None:
    """``func`` as such a product; ``None`` where it is none, or faster without the unit."""
    try:
        found = _product_of(func, machine)
    except Exception:  # blocks of a kind that has no schedule
        return None
    return found if found is not None and _is_faster(found, machine) else None


def _product_of(func: Any, machine: Machine) -> SplitProduct | None:
    sch = inline_producers(new_schedule(func), _may_inline)
    sch = align_epilogues(new_schedule(sch.mod["main"]))
    first, *others = stages_of(sch)
    product, epilogue = matrix_product(sch, first, LANES), epilogue_of(sch, first) if others else None
    if product is None or len(others) > 1 or (others and (epilogue is None or not is_in_place(first, epilogue))):
        return None
    weights = product.weights.load.buffer
    loads = [load for stage in (first, *others) for load in stage.loads if load.buffer.same_as(weights)]
    is_parameter = any(param.same_as(weights) for param in sch.mod["main"].params)
    plan = plan_tiles(product, machine) if is_parameter and len(loads) == 1 else None
    return SplitProduct(sch, product, epilogue, plan) if plan else None


def _is_faster(split: SplitProduct, machine: Machine) -> bool:
    return split.plan.nanoseconds < NestModel(machine).apart(chain_of(stages_of(split.sch)))


def _may_inline(stage: Stage, readers: Sequence[Stage]) -> bool:
    """Elementwise stages are one with others, and what is not costly with the product that reads it."""
    if any(reader.is_reduction for reader in readers):
        return len(readers) == 1 and not stage.is_costly
    return all(reader.simple and reader.domain <= stage.domain for reader in readers)
