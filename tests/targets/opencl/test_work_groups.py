"""Sizes of work groups: no compute unit has more to do than it must."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from programs import program
from targets.opencl.running import check
from tvm.relax import op

from eqsat_layout.targets.gpu.kernels.work_groups import WorkGroups


def busiest(groups: WorkGroups, items: int, size: int) -> int:
    """Waves of the unit that has most: it takes every n-th group."""
    return len(range(0, -(-items // size), groups.units)) * max(1, size // groups.wave)


@given(
    items=st.integers(1, 10_000),
    units=st.integers(1, 12),
    wave=st.sampled_from([1, 8, 64]),
    largest=st.sampled_from([64, 256]),
)
def test_no_size_has_less_to_do_and_is_larger(items: int, units: int, wave: int, largest: int) -> None:
    groups = WorkGroups(units, wave, largest)
    size = groups.size(items)
    assert size <= largest
    for other in (1 << k for k in range(9)):
        if other <= largest and other < 2 * items:
            assert busiest(groups, items, size) <= busiest(groups, items, other)
            assert other <= size or busiest(groups, items, size) < busiest(groups, items, other)


def test_few_items_are_one_group() -> None:
    groups = WorkGroups(units=2, wave=64, largest=256)
    assert [groups.size(items) for items in (1, 5, 64, 65, 128, 512, None)] == [1, 8, 64, 64, 64, 256, 256]


def test_groups_differ_by_profile() -> None:
    """The same kernel on two devices."""
    mod = program(lambda builder, x: builder.emit(op.nn.relu(x)), (8, 16, 128))
    sizes = set()
    for profile in ("adreno6xx", "mali"):
        found = check(mod, {"kind": "opencl", "profile": profile})
        sizes |= {launch.items for function in found.plan.functions for launch in function.launches}
    assert len(sizes) == 2
