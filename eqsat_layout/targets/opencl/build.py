"""From a module of kernels to a program for OpenCL devices.

In: Relax functions of ``call_tir`` over PrimFuncs whose buffers say their scopes. Out: an
:class:`~eqsat_layout.targets.opencl.host.executable.OpenClProgram`, or an
:class:`~eqsat_layout.targets.opencl.library.OpenClLibrary`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import tvm

from eqsat_layout.errors import TargetError
from eqsat_layout.notes import Notes
from eqsat_layout.targets.gpu.host.program import host_plan
from eqsat_layout.targets.gpu.kernel_names import with_kernel_names
from eqsat_layout.targets.gpu.kernels.families import of_first_family, said_of
from eqsat_layout.targets.gpu.kernels.functions import with_work_items
from eqsat_layout.targets.gpu.kernels.nests import Nest
from eqsat_layout.targets.gpu.kernels.serial import as_it_stands
from eqsat_layout.targets.gpu.lowered import Lowered
from eqsat_layout.targets.gpu.sorts import without_libraries
from eqsat_layout.targets.gpu.views import launched_and_views
from eqsat_layout.targets.opencl.host.executable import OpenClProgram
from eqsat_layout.targets.opencl.images import image_of
from eqsat_layout.targets.opencl.kernels.half import body_in_single_precision, halves_in_single_precision
from eqsat_layout.targets.opencl.kernels.lowering import as_sources, halves, lowered
from eqsat_layout.targets.opencl.kernels.sampled import without_needless_guards
from eqsat_layout.targets.opencl.kernels.whole_texels import with_whole_texels
from eqsat_layout.targets.opencl.library import (
    OpenClLibrary,
    called_by_machine,
    called_tensors,
    for_virtual_machine,
    host_module,
    linked_module,
)
from eqsat_layout.targets.opencl.profiles import Profile


def build(
    mod: tvm.IRModule, target: tvm.target.Target, profile: Profile, notes: Notes, *, in_order: bool = True
) -> OpenClProgram:
    """What no work items are found for runs in one, and a note says so. ``in_order``: sums are added up as stated."""
    mod = with_kernel_names(without_libraries(mod, in_order=in_order))
    launched, views = launched_and_views(mod)
    return _program(mod, views, lowered(_kernels(launched, profile, notes, in_order), target))


def slow_kernels(mod: tvm.IRModule, profile: Profile, *, in_order: bool = True) -> tuple[str, ...]:
    """What :func:`build` says of the kernels that run in one work item, or can't be built."""
    launched, _ = launched_and_views(without_libraries(mod, in_order=in_order))
    return said_of(launched, _maker(profile, in_order))


def build_library(
    mod: tvm.IRModule, target: tvm.target.Target, profile: Profile, notes: Notes, *, in_order: bool = True
) -> OpenClLibrary:
    """The same for TVM's virtual machine, on the host that the target names."""
    mod = with_kernel_names(without_libraries(mod, in_order=in_order))
    launched, views = launched_and_views(mod)
    machine = for_virtual_machine(mod, views, target)
    called, host = called_by_machine(machine)
    functions = _kernels(called | launched, profile, notes, in_order)
    made = halves(functions | host, target, called | launched)
    program: OpenClProgram | None = None
    try:
        program = _program(mod, views, as_sources(made, functions, target))
    except TargetError as reason:  # branches and calls of libraries are left to the virtual machine
        notes.add(f"the library has no program beside it: {reason}")
    launching = host_module(made, target)
    tensors = {name: called_tensors(func) for name, func in called.items()}
    return OpenClLibrary(linked_module(machine, launching, target), program, launching, tensors)


def _kernels(functions: Mapping[str, Any], profile: Profile, notes: Notes, in_order: bool) -> dict[str, Any]:
    made = _maker(profile, in_order)
    return {name: made(name, func, notes) for name, func in functions.items()}


def _maker(profile: Profile, in_order: bool) -> Callable[[str, Any, Notes], Any]:
    suited, otherwise = partial(_suited, profile), partial(_as_it_stands, profile)
    families = (partial(with_work_items, suited=suited, in_order=in_order, groups=profile.groups),)
    return partial(of_first_family, families=families, otherwise=otherwise, thread="work item")


def _program(mod: tvm.IRModule, views: Collection[str], made: Lowered) -> OpenClProgram:
    plan, constants = host_plan(mod, made.host, views, image_of)
    sources = {name: text for name, text in made.sources.items() if name in plan.kernels}
    return OpenClProgram(sources, plan, constants)


def _as_it_stands(profile: Profile, func: Any) -> tuple[Any, bool]:
    made, has_one = as_it_stands(func)
    made = with_whole_texels(made)
    return made if profile.has_f16 else body_in_single_precision(made), has_one


def _suited(profile: Profile, func: Any, nests: list[Nest]) -> tuple[Any, list[Nest]]:
    """The function with arithmetic that the device has, and without guards that its images do by themselves."""
    if not profile.has_f16:
        func, nests = halves_in_single_precision(func, nests)
    return func, without_needless_guards(nests) if profile.clamps_to_zero else nests
