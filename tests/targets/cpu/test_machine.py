"""What a CPU is: presets, caches as the system says, and what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eqsat_layout.cost.model import Roofline
from eqsat_layout.targets.cpu.costs import default_costs
from eqsat_layout.targets.cpu.machine import PRESETS, machine_of, with_caches
from eqsat_layout.targets.cpu.target import normalize_target
from eqsat_layout.targets.registry import target

KIB = 1 << 10


def target_of(**config):
    return normalize_target({"kind": "llvm", "num-cores": 2} | config)


AMX_FLOATS, AMX_BYTES = ["+amx-tile", "+amx-bf16"], ["+amx-tile", "+amx-int8"]


@pytest.mark.parametrize(
    ("config", "name", "changed"),
    [
        ({"mcpu": "znver5"}, "avx512 of zen 5", {"byte_products": True}),
        ({"mcpu": "znver4"}, "avx512 in halves", {"byte_products": True}),
        ({"mcpu": "haswell"}, "avx2", {}),
        ({"mcpu": "nehalem"}, "sse", {}),
        ({"mcpu": "skylake-avx512"}, "avx512", {}),
        ({"mcpu": "alderlake"}, "avx2", {"byte_products": True}),
        ({"mcpu": "sapphirerapids", "mattr": AMX_FLOATS}, "amx", {"matrix_bytes": False}),
        ({"mcpu": "sapphirerapids", "mattr": AMX_BYTES}, "amx", {"matrix_unit": False}),
        ({"mcpu": "sapphirerapids", "mattr": [*AMX_FLOATS, *AMX_BYTES]}, "amx", {}),
        ({"mcpu": "sapphirerapids", "mattr": ["+amx-tile"]}, "avx512", {"byte_products": True}),
    ],
)
def test_another_machine_is_what_its_preset_says(config, name, changed):
    target = target_of(mtriple="x86_64-linux-gnu", **config)
    if dict(target.attrs)["mcpu"] == dict(normalize_target().attrs)["mcpu"]:
        pytest.skip("this is that machine")
    assert machine_of(target) == replace(PRESETS[name], cores=2, **changed)


def test_units_that_take_half_a_vector_need_half_as_many_sums():
    halves = machine_of(target_of(mcpu="znver4", mtriple="x86_64-linux-gnu"))
    whole = PRESETS["avx512"]
    assert (halves.vectors_per_cycle, whole.vectors_per_cycle) == (1, 2)
    assert halves.sums_in_flight == whole.sums_in_flight // 2
    costs = default_costs(halves)
    assert costs.flops == default_costs(replace(whole, clock=halves.clock)).flops / 2
    assert costs.vector_bytes == 32, "blocks of 8 channels are as fast"
    assert default_costs(whole).sliding < costs.sliding < 0.9, "half of the lines are read from two of them"


@pytest.mark.parametrize("name", PRESETS)
def test_working_sets_fit_their_caches(name):
    machine = PRESETS[name]
    assert machine.l1_working_set <= machine.l1_bytes <= machine.l2_bytes
    assert machine.l2_working_set <= machine.l2_bytes <= machine.last_level_bytes


def test_the_last_cache_is_as_the_system_says():
    assert target().cache_bytes >= max(1 << 18, PRESETS["sse"].l2_bytes)


def test_larger_caches_are_known_but_not_counted_on():
    """Hyperthreads share them: with all 2 MiB of a Xeon ten networks took 0.4 to 4 % longer."""
    machine = with_caches(PRESETS["avx512"], {1: 48 * KIB, 2: 2048 * KIB, 3: 266240 * KIB})
    assert (machine.l1_bytes, machine.l2_bytes, machine.last_level_bytes) == (48 * KIB, 2048 * KIB, 266240 * KIB)
    assert machine.l1_working_set == PRESETS["avx512"].l1_working_set
    assert machine.l2_working_set == PRESETS["avx512"].l2_working_set


def test_smaller_caches_bound_the_working_sets():
    machine = with_caches(PRESETS["avx2"], {1: 24 * KIB, 2: 256 * KIB})
    assert (machine.l1_working_set, machine.l2_working_set) == (24 * KIB, 256 * KIB)
    assert with_caches(machine, {}) == machine, "nothing is known where the system is silent"


def test_this_machine_has_the_working_sets_of_its_preset_or_less():
    here = machine_of(normalize_target())
    preset = next(p for p in PRESETS.values() if p.vector_bytes == here.vector_bytes)
    assert here.l2_working_set <= min(preset.l2_working_set, here.l2_bytes)


def test_what_was_measured_takes_the_place_of_a_preset():
    measured = {"memory_bandwidth": 2e10, "clock": 4e9, "registers": 7.0, "from the future": 1.0}
    machine = machine_of(target_of(mcpu="haswell"), measured)
    assert (machine.memory_bandwidth, machine.clock) == (2e10, 4e9)
    assert replace(machine, memory_bandwidth=12.5e9, clock=3e9) == machine_of(target_of(mcpu="haswell"))


@pytest.mark.parametrize(
    ("mcpu", "vector_bytes", "sliding"), [("skylake-avx512", 64, 0.6), ("haswell", 32, 0.92), ("nehalem", 16, 0.92)]
)
def test_the_roofline_is_that_of_the_machine(mcpu, vector_bytes, sliding):
    """One core; data come from the last-level cache and weights from memory; an element of a phase takes a cycle,
    one that is copied by itself one and a half.

    A rewrite keeps .8 of the bandwidth.
    """
    costs = default_costs(machine_of(target_of(mcpu=mcpu, mtriple="x86_64-linux-gnu")))
    expected = Roofline(
        flops=3e9 * vector_bytes, vector_bytes=vector_bytes, phase=1 / 3e9, gather=1.5 / 3e9, sliding=sliding
    )
    assert costs == replace(expected, rewrite_bandwidth=20e9)
