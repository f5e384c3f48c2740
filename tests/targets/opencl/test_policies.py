"""Policies of other engines are kept where they can be, and our own plan never costs more."""

from __future__ import annotations

from typing import Any

import pytest
from programs import constant, program
from tvm.relax import op

import eqsat_layout
from eqsat_layout.maps import GLOBAL
from eqsat_layout.models import resnet50
from eqsat_layout.targets.opencl.costs import ImageRoofline
from eqsat_layout.targets.opencl.images import NHWC, TEXTURE, WEIGHT
from eqsat_layout.targets.opencl.policies import ALL_IMAGES, BUFFERS, PER_DEVICE, Policy
from eqsat_layout.targets.opencl.target import OpenClTarget
from eqsat_layout.targets.registry import target as target_of

nn = op.nn


def target(profile: str) -> OpenClTarget:
    found = target_of({"kind": "opencl", "profile": profile})
    assert isinstance(found, OpenClTarget)
    return found


def body(builder: Any, x: Any) -> Any:
    y = builder.emit(nn.relu(builder.emit(nn.conv2d(x, constant(32, 32, 3, 3), padding=1))))
    return builder.emit(nn.relu(builder.emit(nn.conv2d(y, constant(32, 32, 3, 3, seed=1), padding=1))))


def scopes(policy: Policy, profile: str) -> set[str]:
    """Of what the plan's calls bind, but for the last, which is public."""
    own = target(profile)
    plan = eqsat_layout.plan(program(body, (1, 32, 28, 28)), own, cost_model=policy.costs(own))
    bindings = [b for block in plan.module["main"].body.blocks for b in block.bindings]
    return {GLOBAL if b.var.ty.vdevice is None else str(b.var.ty.vdevice.memory_scope) for b in bindings[:-2]}


@pytest.mark.parametrize("profile", ["adreno6xx", "mali"])
def test_buffers_only_has_no_image(profile: str) -> None:
    assert scopes(BUFFERS, profile) == {GLOBAL}


def test_a_program_for_pocl_is_that_of_buffers_only() -> None:
    """So it can't be slower: images are simulated there."""
    own, mod = target("pocl"), resnet50(image=32, width=8, blocks=(1, 1, 1, 1))
    ours, buffers = (eqsat_layout.compile(mod, own, **options) for options in ({}, {"cost_model": BUFFERS.costs(own)}))
    assert ours.sources == buffers.sources
    assert ours.plan == buffers.plan


@pytest.mark.parametrize("profile", ["adreno6xx", "mali"])
def test_all_textures_has_no_buffer_between_ops(profile: str) -> None:
    assert GLOBAL not in scopes(ALL_IMAGES, profile)


@pytest.mark.parametrize(
    ("profile", "expected"),
    [("adreno6xx", {TEXTURE, WEIGHT}), ("powervr", {NHWC, WEIGHT}), ("mali", {GLOBAL})],
)
def test_per_device_has_the_memory_of_the_device(profile: str, expected: set[str]) -> None:
    assert scopes(PER_DEVICE, profile) <= expected


@pytest.mark.parametrize("profile", ["adreno5xx", "adreno6xx", "mali", "powervr", "pocl"])
def test_our_plan_costs_no_more_than_any_policy(profile: str) -> None:
    """What a policy's plan costs is what reading its module again says, under the honest model."""
    own, mod = target(profile), program(body, (1, 32, 28, 28))
    best = eqsat_layout.plan(mod, own).cost
    for policy in (BUFFERS, ALL_IMAGES, PER_DEVICE):
        module = eqsat_layout.plan(mod, own, cost_model=policy.costs(own)).module
        assert best <= eqsat_layout.plan(module, own, candidates=False).input_cost * 1.05, policy.name


@pytest.mark.parametrize("profile", ["adreno6xx", "mali"])
def test_the_plan_for_traffic_moves_no_more_than_that_of_any_policy(profile: str) -> None:
    """As the planner counts bytes: before calls are joined to kernels."""
    own, mod = target(profile), program(body, (1, 32, 28, 28))
    traffic = own.traffic(ImageRoofline(own.profile))
    least = eqsat_layout.plan(mod, own, objective="traffic")
    assert least.lower_bound == pytest.approx(least.cost)
    moved = []
    for costs in (None, *(policy.costs(own) for policy in (BUFFERS, ALL_IMAGES, PER_DEVICE))):
        module = eqsat_layout.plan(mod, own, cost_model=costs).module
        moved.append(eqsat_layout.plan(module, own, cost_model=traffic, candidates=False).input_cost)
    assert least.cost <= min(moved) * (1 + 1e-5)  # seconds decide among equals
    if profile == "adreno6xx":
        assert moved[1] > 2 * least.cost  # buffers come from beyond the first cache each time
