"""From a module of kernels to a program for CUDA devices.

In: Relax functions of ``call_tir`` over PrimFuncs. Out: a
:class:`~eqsat_layout.targets.cuda.host.executable.CudaProgram`.
"""

from __future__ import annotations

from typing import Any

import tvm

from eqsat_layout.errors import Refused
from eqsat_layout.notes import Notes
from eqsat_layout.targets.cuda.compiler import available_compiler, compiled
from eqsat_layout.targets.cuda.host.executable import CudaProgram
from eqsat_layout.targets.cuda.kernels.product_kernel import kernel_of
from eqsat_layout.targets.cuda.kernels.product_model import plans_for
from eqsat_layout.targets.cuda.kernels.products import product_of
from eqsat_layout.targets.cuda.lowering import lowered
from eqsat_layout.targets.cuda.machine import CudaMachine
from eqsat_layout.targets.gpu.host.program import host_plan
from eqsat_layout.targets.gpu.kernels.functions import with_work_items
from eqsat_layout.targets.gpu.kernels.serial import in_one_work_item
from eqsat_layout.targets.gpu.views import launched_and_views, with_plain_sorts


def build(
    mod: tvm.IRModule, target: tvm.target.Target, machine: CudaMachine, notes: Notes, *, approx: bool
) -> CudaProgram:
    """What no threads are found for runs in one, and a note says so. Without a compiler there is only source.

    ``approx``: products may run on tensor cores, which add up in another order and, of float32, cut operands to parts.
    """
    mod = with_plain_sorts(mod)
    launched, views = launched_and_views(mod)
    kernels = {name: _kernels(name, func, machine if approx else None, notes) for name, func in launched.items()}
    made = lowered(kernels, target)
    plan, constants = host_plan(mod, made.host, views)
    used = {launch.kernel for function in plan.functions for launch in function.launches}
    sources = {name: text for name, text in made.sources.items() if name in used}
    arch = str(target.attrs["arch"])
    if available_compiler() is None:
        notes.add("no CUDA compiler is here (eqsat-layout[cuda] has one): the program holds source, no machine code")
        return CudaProgram(sources, plan, constants, arch, {})
    binaries = {name: compiled(text, arch).cubin for name, text in sources.items()}
    return CudaProgram(sources, plan, constants, arch, binaries)


def _kernels(name: str, func: Any, with_tensor_cores: CudaMachine | None, notes: Notes) -> Any:
    """``func`` as launches: on tensor cores, as threads that each compute a tile, or as one thread."""
    if with_tensor_cores is not None:
        try:
            product = product_of(func)
            return kernel_of(product, plans_for(product, with_tensor_cores)[0])
        except Refused:  # most functions are no products
            pass
    try:
        return with_work_items(func)
    except Refused as reason:
        notes.add(f"kernel {name} runs in one thread: {reason}")
        return in_one_work_item(func)
