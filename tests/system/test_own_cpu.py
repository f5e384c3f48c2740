"""The CPU that this runs on, as LLVM knows it."""

from __future__ import annotations

import tvm
from tvm.target import codegen

from eqsat_layout.system.own_cpu import hidden_features, own_cpu
from eqsat_layout.targets.cpu import host
from eqsat_layout.targets.cpu.target import normalize_target


def features(**config):
    return set(map(str, codegen.llvm_get_cpu_features(tvm.target.Target({"kind": "llvm"} | config))))


def test_sets_of_instructions_that_a_hypervisor_hides_are_not_used():
    config = {"mcpu": "emeraldrapids", "mtriple": "x86_64-linux-gnu"}
    usual = features(**config)
    told = {name: not name.startswith("avx512") for name in usual}
    without = hidden_features(usual, told)
    assert "-avx512f" in without
    assert not {name for name in features(**config, mattr=without) if name.startswith("avx512")}
    assert {"avx2", "fma"} <= features(**config, mattr=without)
    assert not hidden_features(usual, dict.fromkeys(usual, True))
    assert not hidden_features(usual, {}), "a system that says nothing hides nothing"


def test_what_only_the_system_uses_stays_out_of_the_target():
    usual = features(mcpu="emeraldrapids", mtriple="x86_64-linux-gnu")
    assert not hidden_features(usual, {"shstk": False, "pku": False, "amx-tile": False})


def test_this_machine_has_what_its_target_uses():
    told = tvm.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")()
    config = own_cpu().config
    used = set(map(str, codegen.llvm_get_cpu_features(tvm.target.Target(config))))
    lacking = {str(name) for name, has in told.items() if not has}
    assert not {name for name in used & lacking if name.startswith(("avx", "bmi", "fma", "sse"))}


def test_a_cpu_with_a_matrix_unit_that_is_not_allowed_does_not_need_it():
    """A program for a virtual machine whose hypervisor hides the unit was refused by the machine that made it."""
    config = {"kind": "llvm", "mcpu": "sapphirerapids", "mtriple": "x86_64-linux-gnu"}
    assert not {name for name in host.needs(normalize_target(config)) if name.startswith("amx")}
    allowed = normalize_target(config | {"mattr": ["+amx-tile", "+amx-bf16"]})
    assert {name for name in host.needs(allowed) if name.startswith("amx")} == {"amx_tile", "amx_bf16"}
