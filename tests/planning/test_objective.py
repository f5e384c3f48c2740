"""Plans for the least bytes, of any target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from programs import constant, program
from tvm.relax import op
from typer.testing import CliRunner

import eqsat_layout
from eqsat_layout.cli.main import app
from eqsat_layout.cost.copies import COPY
from eqsat_layout.cost.database import Snapshot
from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.modules import write_module
from eqsat_layout.targets.registry import target as target_of
from eqsat_layout.tuning.tune import tune

TARGETS = [
    pytest.param({"kind": "llvm", "mcpu": "x86-64-v3"}, id="llvm"),
    pytest.param({"kind": "cuda", "arch": "sm_90"}, id="cuda"),
    pytest.param({"kind": "opencl", "profile": "adreno6xx"}, id="opencl"),
]


def convolution() -> Any:
    """Which Winograd's algorithm makes fast, by way of tensors that are larger than its own."""

    def body(builder: Any, x: Any) -> Any:
        return builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(x, constant(64, 64, 3, 3), padding=1))))

    return program(body, (1, 64, 28, 28))


@pytest.mark.parametrize("given", TARGETS)
def test_the_plan_for_traffic_moves_no_more_than_the_fastest(given: Any) -> None:
    own, mod = target_of(given), convolution()
    least, fastest = eqsat_layout.plan(mod, own, objective="traffic"), eqsat_layout.plan(mod, own)
    assert least.gap == 0
    assert any("compared by traffic" in note for note in least.notes)
    assert not any("traffic" in note for note in fastest.notes)
    costs = own.traffic(own.costs(Snapshot()))
    moved = eqsat_layout.plan(fastest.module, own, cost_model=costs, candidates=False).input_cost
    assert least.cost <= moved * (1 + 1e-5)  # seconds decide among equals
    if own.kind == "llvm":  # on GPUs it does not pay
        assert ["winograd" in plan.module.script() for plan in (least, fastest)] == [False, True]


def test_no_plan_has_fewer_copies_than_the_one_for_copies() -> None:
    """An image gains more than the copy into it costs, so the plan for time has one where a plan without exists."""

    def body(builder: Any, x: Any) -> Any:
        for seed in range(3):
            x = builder.emit(op.nn.conv2d(x, constant(64, 64, 3, 3, seed=seed), padding=1))
        return builder.emit(op.mean(x, axis=[1, 2, 3]))

    mod, target = program(body, (1, 64, 56, 56)), {"kind": "opencl", "profile": "adreno6xx"}
    notes: list[str] = []
    fewest, fastest = (eqsat_layout.plan(mod, target, objective=one, notes=notes) for one in ("copies", "time"))
    assert fewest.cost < COPY  # none
    assert fewest.gap == 0
    assert len(fastest.transforms) > 0
    assert fastest.cost < fewest.cost
    assert any("compared by copies" in note for note in fewest.notes)
    assert notes == [*fewest.notes, *fastest.notes]  # a list that was given stayed empty


def test_a_cost_model_has_no_objective_beside_it() -> None:
    own = target_of("llvm")
    with pytest.raises(EqsatError, match="objective"):
        eqsat_layout.plan(convolution(), own, objective="traffic", cost_model=own.costs(Snapshot()))


def test_tuning_knows_seconds_only() -> None:
    with pytest.raises(EqsatError, match="traffic"):
        tune(convolution(), "llvm", objective="traffic")


def test_the_command_line_takes_it(tmp_path: Path) -> None:
    write_module(convolution(), tmp_path / "net.py")
    found = CliRunner().invoke(app, ["plan", str(tmp_path / "net.py"), "--objective", "traffic"])
    assert found.exit_code == 0, found.output
    assert "compared by traffic" in " ".join(found.output.split())
    refused = CliRunner().invoke(app, ["plan", str(tmp_path / "net.py"), "--objective", "bytes"])
    assert refused.exit_code == 2
    assert "'traffic'" in refused.stderr
