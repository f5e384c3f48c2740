"""The products of a network under the plans that the model likes best: what a card is asked which is fastest.

In: the PrimFuncs of a build and a machine. Out: an item and a program by product, with a function for each plan. They
share operands and results; a function launches the same several times over, since one launch is too short for a clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, Final

import tvm_ffi

from bench.cuda.bundles.data import Recipe
from bench.cuda.bundles.items import CANDIDATES, Item
from eqsat_layout.errors import Refused
from eqsat_layout.targets.cuda.host.executable import CudaProgram
from eqsat_layout.targets.cuda.kernels.product_kernel import product_kernel
from eqsat_layout.targets.cuda.kernels.product_model import model_of, plans_for
from eqsat_layout.targets.cuda.kernels.product_plan import ProductPlan
from eqsat_layout.targets.cuda.kernels.products import Product, product_of
from eqsat_layout.targets.cuda.lowering import lowered
from eqsat_layout.targets.cuda.target import CudaTarget
from eqsat_layout.targets.gpu.host.launches import launches_of
from eqsat_layout.targets.gpu.host.plan import Allocation, HostFunction, HostPlan, TensorInMemory
from eqsat_layout.targets.gpu.host.plan_writer import stored_bytes

_TOLERANCE: Final = 1e-2
"""Between plans, which add up in other orders and may round to halves."""


def candidates(
    functions: Mapping[str, Any], target: CudaTarget, count: int, repeats: int, seen: set[Any]
) -> Iterator[tuple[Item, CudaProgram]]:
    """``count`` plans of each product that is not ``seen``. ``functions``: unscheduled, by name."""
    for name, func in functions.items():
        key = tvm_ffi.StructuralKey(func.without_attr("global_symbol"))
        if key in seen:
            continue
        seen.add(key)
        try:
            product = product_of(func)
        except Refused:
            continue
        yield _candidates(f"product_{len(seen)}", name, product, target, count, repeats)


def _candidates(
    title: str, name: str, product: Product, target: CudaTarget, count: int, repeats: int
) -> tuple[Item, CudaProgram]:
    """``title``: of a file; names of kernels may be too long for one."""
    model = model_of(product, target.machine)
    plans = {f"{name}_plan{i}": plan for i, plan in enumerate(_different(product, target)[:count])}
    kernels = {entry: product_kernel(product, plan) for entry, plan in plans.items()}
    made = lowered(kernels, target.tvm)
    params = list(next(iter(kernels.values())).params)
    types = [(tuple(int(e) for e in p.ty.shape), str(p.ty.dtype)) for p in params]
    memories: list[Allocation] = []

    def allocate(elements: Any, dtype: str, zeros: bool = False) -> int:
        memories.append(Allocation(elements * stored_bytes(dtype), zeros=zeros))
        return len(memories) - 1

    values = []
    for shape, dtype in types:
        elements = 1
        for extent in shape:
            elements *= extent
        values.append(TensorInMemory(shape, dtype, "global", allocate(elements, dtype)))
    *inputs, result = range(len(values))
    found = []
    for entry in plans:
        launches = launches_of(entry, made.host[entry], list(range(len(values))), {}, allocate)
        names = tuple(f"x{i}" for i in inputs)
        found.append(HostFunction(entry, tuple(inputs), names, (), tuple(launches) * repeats, result))
    plan = HostPlan(tuple(memories), tuple(values), (), tuple(found))
    modelled = {entry: {"modelled": model.seconds(one), **asdict(one)} for entry, one in plans.items()}
    recipes = [Recipe(*types[i], seed=i + 1) for i in inputs]
    said = {"kernel": name, "repeats": repeats, "plans": modelled}
    item = Item(title, CANDIDATES, (), recipes, _TOLERANCE, said)
    return item, CudaProgram(made.sources, plan, [], str(target.tvm.attrs["arch"]))


def _different(product: Product, target: CudaTarget) -> list[ProductPlan]:
    """The best of each size of a block and each way of dealing out sums: what else plans say matters less.

    Those come first that are the best of their way: whole sums, parts of each, equal runs of all.
    """
    found: dict[Any, ProductPlan] = {}
    for plan in plans_for(product, target.machine):
        way = (plan.splits > 1, plan.streams > 0, plan.in_bulk)
        found.setdefault((*way, plan.block_rows, plan.block_columns, plan.in_groups), plan)
    firsts: dict[Any, ProductPlan] = {}
    for way, plan in ((key[:3], plan) for key, plan in found.items()):
        firsts.setdefault(way, plan)
    return [*firsts.values(), *(plan for plan in found.values() if plan not in firsts.values())]


def renamed(item: Item, network: str) -> Item:
    """Named after the network it is of, since functions of several have the same names."""
    return replace(item, name=f"{network}_{item.name}")
