"""From a module of kernels to a program for OpenCL devices.

In: Relax functions of ``call_tir`` over PrimFuncs whose buffers say their scopes. Out: an
:class:`~eqsat_layout.targets.opencl.host.executable.OpenClProgram`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tvm

from eqsat_layout.errors import Refused
from eqsat_layout.notes import Notes
from eqsat_layout.targets.gpu.host.program import host_plan
from eqsat_layout.targets.gpu.kernels.functions import with_work_items
from eqsat_layout.targets.gpu.kernels.nests import Nest
from eqsat_layout.targets.gpu.kernels.serial import in_one_work_item
from eqsat_layout.targets.gpu.views import launched_and_views, with_plain_sorts
from eqsat_layout.targets.opencl.host.executable import OpenClProgram
from eqsat_layout.targets.opencl.images import image_of
from eqsat_layout.targets.opencl.kernels.half import body_in_single_precision, in_single_precision
from eqsat_layout.targets.opencl.kernels.lowering import lowered
from eqsat_layout.targets.opencl.kernels.sampled import without_needless_guards
from eqsat_layout.targets.opencl.profiles import Profile


def build(mod: tvm.IRModule, target: tvm.target.Target, profile: Profile, notes: Notes) -> OpenClProgram:
    """What no work items are found for runs in one, and a note says so."""
    mod = with_plain_sorts(mod)
    launched, views = launched_and_views(mod)
    kernels = {name: _kernels(name, func, profile, notes) for name, func in launched.items()}
    made = lowered(kernels, target)
    plan, constants = host_plan(mod, made.host, views, image_of)
    used = {launch.kernel for function in plan.functions for launch in function.launches}
    return OpenClProgram({name: text for name, text in made.sources.items() if name in used}, plan, constants)


def _kernels(name: str, func: Any, profile: Profile, notes: Notes) -> Any:
    try:
        return with_work_items(func, partial(_suited, profile))
    except Refused as reason:
        notes.add(f"kernel {name} runs in one work item: {reason}")
        alone = in_one_work_item(func)
        return alone if profile.has_f16 else body_in_single_precision(alone)


def _suited(profile: Profile, func: Any, nests: list[Nest]) -> tuple[Any, list[Nest]]:
    """With arithmetic that the device has, and without guards that its images do by themselves."""
    if not profile.has_f16:
        func, nests = in_single_precision(func, nests)
    return func, without_needless_guards(nests) if profile.clamps_to_zero else nests
