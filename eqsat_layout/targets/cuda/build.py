"""From a module of kernels to a program for CUDA devices.

In: Relax functions of ``call_tir`` over PrimFuncs. Out: a
:class:`~eqsat_layout.targets.cuda.host.executable.CudaProgram`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import tvm

from eqsat_layout.errors import Refused
from eqsat_layout.notes import Notes
from eqsat_layout.targets.cuda.dependent_launch import has_dependent_launch, knowing_constants, overlapping
from eqsat_layout.targets.cuda.host.executable import CudaProgram
from eqsat_layout.targets.cuda.kernels.attention import attention_of
from eqsat_layout.targets.cuda.kernels.attention_kernel import attention_kernel_of
from eqsat_layout.targets.cuda.kernels.attention_plan import tiles_of
from eqsat_layout.targets.cuda.kernels.exchange_kernel import exchange_kernel
from eqsat_layout.targets.cuda.kernels.product_kernel import product_kernel
from eqsat_layout.targets.cuda.kernels.product_model import fastest_plan
from eqsat_layout.targets.cuda.kernels.product_plan import arithmetic_of
from eqsat_layout.targets.cuda.kernels.products import product_of
from eqsat_layout.targets.cuda.kernels.row_kernel import row_kernel
from eqsat_layout.targets.cuda.kernels.window_kernel import window_kernel
from eqsat_layout.targets.cuda.lowering import lowered
from eqsat_layout.targets.cuda.machine import CudaMachine
from eqsat_layout.targets.cuda.products_in_place import products_in_place
from eqsat_layout.targets.gpu.host.program import host_plan
from eqsat_layout.targets.gpu.kernel_names import with_kernel_names
from eqsat_layout.targets.gpu.kernels.families import Family, of_first_family, said_of
from eqsat_layout.targets.gpu.kernels.functions import with_work_items
from eqsat_layout.targets.gpu.kernels.serial import as_it_stands
from eqsat_layout.targets.gpu.kernels.work_groups import USUAL
from eqsat_layout.targets.gpu.sorts import without_libraries
from eqsat_layout.targets.gpu.views import launched_and_views

_THREADS: Final = 128
"""A warp for each scheduler of a multiprocessor."""
_SECONDS: Final = "eqsat_layout.modelled_seconds"
"""Attribute of kernels that were chosen by a model of their time."""


def build(
    mod: tvm.IRModule, target: tvm.target.Target, machine: CudaMachine, notes: Notes, *, approx: bool
) -> CudaProgram:
    """What no threads are found for runs in one, and a note says so.

    ``approx``: products may run on tensor cores, which add up in another order and, of float32, cut operands to parts.
    """
    mod = with_kernel_names(products_in_place(without_libraries(mod, in_order=not approx)))
    launched, views = launched_and_views(mod)
    arch = str(target.attrs["arch"])
    overlaps = has_dependent_launch(arch)
    if overlaps:
        launched = knowing_constants(mod, launched)
    make = _maker(_families(machine, approx))
    kernels = {name: make(name, func, notes) for name, func in launched.items()}
    made = lowered(kernels, target)
    plan, constants = host_plan(mod, made.host, views)
    if overlaps:
        plan = overlapping(plan)
    sources = {name: text for name, text in made.sources.items() if name in plan.kernels}
    modelled = {
        f"{name}_kernel": float(func.attrs[_SECONDS]) for name, func in kernels.items() if _SECONDS in func.attrs
    }
    return CudaProgram(sources, plan, constants, arch, modelled=modelled)


def slow_kernels(mod: tvm.IRModule, machine: CudaMachine, *, approx: bool) -> tuple[str, ...]:
    """What :func:`build` says of the kernels that run in one thread, or can't be built."""
    launched, _ = launched_and_views(without_libraries(mod, in_order=not approx))
    return said_of(launched, _maker(_families(machine, approx)))


def _maker(families: Sequence[Family]) -> Callable[[str, Any, Notes], Any]:
    return partial(of_first_family, families=families, otherwise=as_it_stands, thread="thread")


def _families(machine: CudaMachine, approx: bool) -> Sequence[Family]:
    """The fastest first; those that add up in another order only where they may."""

    def on_tensor_cores(func: Any) -> Any:
        product = product_of(func)
        if not approx and not arithmetic_of(product, machine).is_exact:
            raise Refused("it would add up in another order")
        plan, seconds = fastest_plan(product, machine)
        return product_kernel(product, plan).with_attr(_SECONDS, seconds)

    def of_attention(func: Any) -> Any:
        tiles = tiles_of(attention_of(func), machine)[0]
        return attention_kernel_of(tiles).with_attr(_SECONDS, tiles.seconds(machine))

    def of_window(func: Any) -> Any:
        return window_kernel(func, machine)

    def of_elements(func: Any) -> Any:
        return with_work_items(func, in_order=not approx, groups=groups)

    groups = replace(USUAL, busy=machine.multiprocessors * _THREADS)
    exact = (exchange_kernel, of_elements)
    return (of_attention, of_window, on_tensor_cores, row_kernel, *exact) if approx else (on_tensor_cores, *exact)
