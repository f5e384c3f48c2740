"""Measuring on this machine: constants for the roofline, kernels for the database. No timing is taken for granted."""

from __future__ import annotations

import dataclasses
import platform
import time
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from typer.testing import CliRunner

from eqsat_layout.cli.main import app
from eqsat_layout.cost.database import Database, Snapshot
from eqsat_layout.cost.kernel_key import copy_key, kernel_key
from eqsat_layout.cost.measurements import Constants
from eqsat_layout.cost.model import Roofline
from eqsat_layout.errors import TargetError
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.graph.importer import import_module
from eqsat_layout.implementations.layouts import Blocking, layout_candidates
from eqsat_layout.maps import UNDEF, Format, IndexMap
from eqsat_layout.models import resnet50
from eqsat_layout.planning.pipeline import choose
from eqsat_layout.targets.cpu.target import CpuTarget
from eqsat_layout.targets.lowering import lower
from eqsat_layout.targets.protocol import Target, with_constants
from eqsat_layout.targets.registry import target
from eqsat_layout.tuning.measure import (
    Timing,
    copy_kernel,
    op_kernel,
    record_of,
)
from eqsat_layout.tuning.probe import Here

ELSEWHERE = {"kind": "llvm", "mtriple": "riscv64-unknown-linux-gnu", "mcpu": "generic-rv64"}


def here() -> Here:
    return Here(target())


def roofline_of(own: Target, snapshot: Snapshot) -> Roofline:
    """The cost model where no kernel is measured."""
    model = own.costs(snapshot)
    assert isinstance(model, Roofline)
    return model


def signature_of(make_module, body, *shapes) -> Signature:
    (signature,) = import_module(make_module(body, *shapes)).signatures.values()
    return signature


@pytest.fixture(scope="module")
def conv(make_module) -> Signature:
    body = lambda emit, x, w: emit(relax.op.nn.conv2d(x, w, padding=1))  # noqa: E731
    return signature_of(make_module, body, (1, 16, 14, 14), (16, 16, 3, 3))


def test_time_that_a_run_waits_for_others_does_not_count() -> None:
    """Constants were measured by the wall clock, which other processes hold up."""

    @tvm.register_global_func("eqsat_layout.tests.wait", override=True)
    def wait(x: object) -> object:
        time.sleep(0.2)
        return x

    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        call = relax.call_pure_packed("eqsat_layout.tests.wait", x, ty_args=[x.ty])
        builder.emit_func_output(builder.emit(call))
    place = here()
    loaded = place.load(lower(builder.get(), place.target), [np.zeros(4, "float32")])
    assert loaded.runs("main", 1)(1)[0] < 0.1


def test_a_clock_that_ticks_slower_than_a_run_does_not_make_it_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seconds are divided by: some systems count processor time in ticks of 10 ms or more."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.negative(x)))
    place = here()
    loaded = place.load(lower(builder.get(), place.target), [np.zeros(4, "float32")])
    monkeypatch.setattr(time, "process_time", lambda: 1.0)
    assert min(loaded.runs("main", 1)(3)) > 0


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The directory of the database, and what the command printed."""
    directory = tmp_path_factory.mktemp("calibrated") / "cache"
    result = CliRunner().invoke(app, ["calibrate", "--quick", "--output", str(directory)])
    assert result.exit_code == 0, result.output
    return directory, result.output


def test_the_command_prints_and_stores_constants(calibrated: tuple[Path, str]) -> None:
    directory, printed = calibrated
    snapshot = Database(directory).read()
    (stored,) = snapshot.constants.values()
    assert stored.machine == target().name
    assert stored.version == target().version
    assert set(stored.values) == {"bandwidth", "rewrite_bandwidth", "flops", "launch"}
    assert all(value > 0 for value in stored.values.values())
    assert snapshot.notes == ()
    for word in ("streaming", "layout rewrites", "arithmetic", "start of a kernel", "default", "measured", "GB/s"):
        assert word in printed
    assert f"{stored.values['flops'] / 1e9:.3g}" in printed
    assert str(directory) in printed


def test_stored_constants_are_used(calibrated: tuple[Path, str]) -> None:
    snapshot = Database(calibrated[0]).read()
    model, default = roofline_of(target(), snapshot), target().roofline()
    stored = snapshot.constants[target().name].values
    assert {name: getattr(model, name) for name in stored} == stored
    assert model.vector_bytes == default.vector_bytes
    assert roofline_of(target(ELSEWHERE), snapshot) == target(ELSEWHERE).roofline()
    assert roofline_of(target({"kind": "llvm", "num-cores": 63}), snapshot).launch == default.launch


def test_the_usual_place_is_read_where_no_database_is_given(
    calibrated: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mod = resnet50(image=32, width=8, blocks=(1, 1, 1, 1))
    monkeypatch.setenv("EQSAT_LAYOUT_CACHE", str(calibrated[0]))
    assert choose(mod, target(), {}).search.costs == roofline_of(target(), Database(calibrated[0]).read())
    monkeypatch.setenv("EQSAT_LAYOUT_CACHE", str(tmp_path))
    assert choose(mod, target(), {}).search.costs == target().roofline()


def test_constants_that_the_model_has_no_field_for_are_passed_over() -> None:
    model = with_constants(Roofline(), {"launch": 2.0, "vector_bytes": 3.0, "from the future": 4.0})
    assert model == dataclasses.replace(Roofline(), launch=2.0)


def test_the_command_refuses_a_target_that_does_not_run_here(tmp_path: Path) -> None:
    target = '{"kind": "llvm", "mtriple": "riscv64-unknown-linux-gnu", "mcpu": "generic-rv64"}'
    result = CliRunner().invoke(app, ["calibrate", "--quick", "--target", target, "-o", str(tmp_path / "cache")])
    assert result.exit_code == 2
    assert "this machine does not run it" in result.stderr
    assert not (tmp_path / "cache").exists()


def test_machines_are_told_apart() -> None:
    names = [target(t).name for t in (None, {"kind": "llvm", "num-cores": 1}, {"kind": "llvm", "num-cores": 63})]
    names += [target({"kind": "llvm", "mcpu": "x86-64"} if "x86_64" in names[0] else ELSEWHERE).name]
    names += [target(ELSEWHERE).name]
    own = target("llvm")
    assert isinstance(own, CpuTarget)
    assert own.name == names[0]
    assert f"{own.machine.cores} threads" in names[0]
    assert len(set(names)) >= 4


def test_a_convolution_is_measured_in_two_layouts(conv: Signature) -> None:
    assert conv.computation is not None
    flow = next(c.flow for c in layout_candidates(conv.computation, Blocking((16,))) if c.name == "blocks of 16")
    for kernel in (op_kernel(conv), op_kernel(conv, flow.operands, flow.results)):
        assert kernel is not None
        timing = kernel.measure(here())
        assert timing.seconds > 0
        assert timing.spread >= 0
        assert timing.runs >= 5


def test_what_is_measured_is_used(conv: Signature, tmp_path: Path) -> None:
    assert conv.computation is not None
    (candidate,) = (c for c in layout_candidates(conv.computation, Blocking((8,))) if c.name == "blocks of 8")
    tensor = conv.results[0]
    assert tensor is not None
    plain, blocks = Format.row_major(tensor.shape), candidate.flow.results[0]
    database = Database(tmp_path)
    in_blocks = op_kernel(conv, candidate.flow.operands, candidate.flow.results)
    for kernel in (op_kernel(conv), in_blocks, copy_kernel(tensor, plain, blocks)):
        assert kernel is not None
        database.add(record_of(kernel, kernel.measure(here()), here()))
    snapshot, machine, version = database.read(), target().name, target().version
    costs = target().costs(snapshot, [conv])
    key = kernel_key(conv.computation, candidate.flow.operands, candidate.flow.results)
    assert key is not None
    found = snapshot.kernel(machine, version, key)
    assert found is not None
    assert costs.run(conv, candidate.flow.operands, candidate.flow.results) == found.seconds
    copied = copy_key(tensor, plain, blocks)
    assert copied is not None
    found = snapshot.kernel(machine, version, copied)
    assert found is not None
    assert costs.convert(tensor, plain, blocks) == found.seconds


def test_padding_and_integers_are_measured() -> None:
    tensor = TensorType((1, 30, 6, 6), "int32")
    wide = IndexMap.identity((1, 32, 6, 6))
    padded = Format.make(wide, padding=((0, 0), (0, 2), (0, 0), (0, 0)), fill=UNDEF)
    plain = Format.row_major(tensor.shape)
    for copy in (copy_kernel(tensor, padded, plain), copy_kernel(tensor, plain, padded)):
        assert copy is not None
        assert copy.measure(here()).seconds > 0


def test_indices_are_measured_within_bounds(make_module) -> None:
    builder = relax.BlockBuilder()
    table, rows = (
        relax.Var(n, relax.TensorType(s, d)) for n, s, d in (("t", (5, 8), "float32"), ("i", (64,), "int64"))
    )
    with builder.function("main", [table, rows]):
        with builder.dataflow():
            output = builder.emit_output(relax.op.take(table, rows, axis=0))
        builder.emit_func_output(output)
    (take,) = import_module(builder.get()).signatures.values()
    kernel = op_kernel(take)
    assert kernel is not None
    assert kernel.measure(here()).seconds > 0


def test_what_can_not_be_measured(make_module, conv: Signature) -> None:
    symbolic = signature_of(make_module, lambda emit, x: emit(relax.op.nn.relu(x)), (tirx.Var("n", "int64"), 4))
    assert op_kernel(symbolic) is None
    assert op_kernel(dataclasses.replace(conv, computation=None)) is None
    with pytest.raises(TargetError, match="does not run it"):
        Here(target(ELSEWHERE))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")
@pytest.mark.parametrize("level", ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_a_machine_measures_for_older_ones_of_its_kind(level: str) -> None:
    """Also where LLVM says of the older one that, say, a lea of three operands is slow on it."""
    wanted = {"x86-64": "sse2", "x86-64-v2": "sse4_2", "x86-64-v3": "avx2", "x86-64-v4": "avx512f"}[level]
    if wanted not in Path("/proc/cpuinfo").read_text().split():
        with pytest.raises(TargetError, match="does not run it"):
            Here(target({"kind": "llvm", "mcpu": level}))
    else:
        assert dict(Here(target({"kind": "llvm", "mcpu": level})).target.tvm.attrs)["mcpu"] == level


def test_a_timing_is_the_median_and_the_quartiles() -> None:
    assert Timing.of([5.0, 1.0, 2.0, 9.0, 3.0]) == Timing(3.0, 3.0, 5)
    assert Timing.of([4.0]) == Timing(4.0, 0.0, 1)


def test_constants_of_another_machine_are_not_used() -> None:
    other = Constants("another", {"launch": 1.0}, "1.0", "2026-01-01T00:00:00Z")
    snapshot = Snapshot(constants={"another": other})
    assert roofline_of(target(), snapshot) == target().roofline()
