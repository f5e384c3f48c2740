"""Matrix products on the matrix unit, where that is faster (targets room).

In: a Relax module of ``call_tir`` calls, fused but not scheduled. Out: the same, in which products with constant
weights are kernels of :mod:`matrix_kernels`, their weights packed for these once and for all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, tirx

from eqsat_layout.targets.base import Machine
from eqsat_layout.targets.epilogues import align_epilogues, epilogue_of, is_in_place
from eqsat_layout.targets.fold import fold_constants
from eqsat_layout.targets.functions import expand_functions
from eqsat_layout.targets.inlining import inline_producers
from eqsat_layout.targets.matrix_kernels import LANES, matrix_kernel, packed_shape, packed_weights, plan_tiles
from eqsat_layout.targets.matrix_products import matrix_product
from eqsat_layout.targets.merged import tir_call
from eqsat_layout.targets.stages import new_schedule, stages_of


def split_products(mod: tvm.IRModule, machine: Machine) -> tvm.IRModule:
    """``mod`` with such kernels; ``mod`` itself where there are none or the machine has no matrix unit."""
    if not machine.matrix_unit:
        return mod
    builder = relax.BlockBuilder(mod)
    changed = _Changer(mod, machine, builder)
    for name, function in mod.functions.items():
        if isinstance(function, relax.Function):
            builder.update_func(name, changed.visit_expr(function))
    if not changed.count:
        return mod
    return fold_constants(relax.transform.DeadCodeElimination()(builder.get()))


@dataclass(frozen=True)
class _Split:
    """A kernel, the PrimFunc that packs its weights, the number of these among its operands, and their new type."""

    kernel: Any
    packer: Any
    weights: int
    packed: Any


@relax.expr_functor.mutator
class _Changer(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, machine: Machine, builder: Any) -> None:
        super().__init__(mod)
        self.mod, self.machine, self.builder = mod, machine, builder
        self.known: dict[Any, _Split | None] = {}
        self.count = 0

    def visit_var_binding_(self, binding: Any) -> None:
        call = tir_call(binding.value)
        if call is not None:
            value = self._changed(*call, binding.value)
            if value is not None:
                self.count += 1
                binding = relax.VarBinding(binding.var, value)
        super().visit_var_binding_(binding)

    def _changed(self, callee: Any, args: tuple[Any, ...], call: Any) -> Any:
        if callee not in self.known:
            self.known[callee] = self._split(self.mod[callee], callee.name_hint)
        split = self.known[callee]
        if split is None or not isinstance(args[split.weights], tvm.ir.GenericConst):
            return None
        packed = self.builder_.emit(relax.call_tir(split.packer, relax.Tuple([args[split.weights]]), split.packed))
        given = [packed if number == split.weights else arg for number, arg in enumerate(args)]
        return relax.call_tir(split.kernel, relax.Tuple(given), call.ty)

    def _split(self, func: Any, name: str) -> _Split | None:
        made = split_product(func, self.machine)
        if made is None:
            return None
        kernel, packer, weights, shape = made
        packed = relax.TensorType(shape, "uint32")
        kernel, packer = (self.builder.add_func(f, n) for f, n in ((kernel, name), (packer, f"{name}_weights")))
        return _Split(kernel, packer, weights, packed)


def split_product(func: Any, machine: Machine) -> Any:
    """(kernel, packer, number of the weights, shape of these packed) of a PrimFunc; ``None`` if it is none of use."""
    if not isinstance(func, tirx.PrimFunc):
        return None
    sch = new_schedule(func)
    sch = inline_producers(sch, lambda stage, readers: not stage.is_costly and len(readers) == 1)
    sch = align_epilogues(new_schedule(sch.mod["main"]))
    stages = stages_of(sch)
    product = matrix_product(sch, stages[0], LANES)
    if product is None or len(stages) > 2:
        return None
    epilogue = epilogue_of(sch, stages[0])
    if len(stages) == 2 and (epilogue is None or not is_in_place(stages[0], epilogue)):
        return None
    main = sch.mod["main"]
    weights = [n for n, param in enumerate(main.params) if param.same_as(product.weights.load.buffer)]
    others = [load for stage in stages for load in stage.loads if load.buffer.same_as(product.weights.load.buffer)]
    plan = plan_tiles(product, machine)
    if len(weights) != 1 or len(others) != 1 or plan is None:
        return None
    kernel = expand_functions(matrix_kernel(product, epilogue, main, sch, plan))
    kernel = kernel.with_attr("tirx.is_scheduled", True).without_attr("global_symbol")
    return kernel, packed_weights(product, func.attrs), weights[0], packed_shape(product)
