"""From a module of kernels to a program for OpenCL devices.

In: Relax functions of ``call_tir`` over PrimFuncs whose buffers say their scopes. Out: an
:class:`~eqsat_layout.targets.opencl.host.executable.OpenClProgram`.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.notes import Notes
from eqsat_layout.targets.opencl.host.executable import OpenClProgram
from eqsat_layout.targets.opencl.host.program import host_plan
from eqsat_layout.targets.opencl.kernels.functions import with_work_items
from eqsat_layout.targets.opencl.kernels.lowering import lowered
from eqsat_layout.targets.opencl.kernels.serial import in_one_work_item
from eqsat_layout.targets.opencl.profiles import Profile


def build(mod: tvm.IRModule, target: tvm.target.Target, profile: Profile, notes: Notes) -> OpenClProgram:
    """What no work items are found for runs in one, and a note says so."""
    mod = relax.transform.RewriteDataflowReshape()(mod)
    mod = relax.transform.DeadCodeElimination()(mod)
    functions = {str(v.name_hint): f for v, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)}
    kernels = {name: _kernels(name, func, notes) for name, func in functions.items()}
    made = lowered(kernels, target)
    plan, constants = host_plan(mod, made.host)
    used = {launch.kernel for function in plan.functions for launch in function.launches}
    return OpenClProgram({name: text for name, text in made.sources.items() if name in used}, plan, constants)


def _kernels(name: str, func: Any, notes: Notes) -> Any:
    try:
        return with_work_items(func)
    except Refused as reason:
        notes.add(f"kernel {name} runs in one work item: {reason}")
        return in_one_work_item(func)
