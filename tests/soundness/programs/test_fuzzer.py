"""The program fuzzer: its programs are many, the same for the same choices, and what is wrong is found and shrunk."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from effort import tries
from hypothesis import HealthCheck, given, settings
from programs import program
from tvm import relax
from tvm.relax import op as R

from eqsat_layout.graph.frozen import FROZEN_ATTRIBUTE
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.op_names import ops_in
from eqsat_layout.notes import STRICT_VARIABLE, is_strict
from eqsat_layout.passes.quantised.product_match import ByteProduct, byte_product_of
from eqsat_layout.passes.quantised.reader import QuantisedReader
from eqsat_layout.soundness.programs import jobs, trial
from eqsat_layout.soundness.programs.check import Pair, difference_up_to_order, interface_difference
from eqsat_layout.soundness.programs.choices import Choices
from eqsat_layout.soundness.programs.fuzzer import fuzz_programs, main
from eqsat_layout.soundness.programs.generator import RandomProgram, make_program, programs
from eqsat_layout.soundness.programs.jobs import Worker, _worked
from eqsat_layout.soundness.programs.ops import ANY_KINDS, FLOAT_KINDS
from eqsat_layout.soundness.programs.ops_edges import EDGE_KINDS
from eqsat_layout.soundness.programs.ops_kernels import BODIES, kernel
from eqsat_layout.soundness.programs.ops_nn import NETWORK_KINDS
from eqsat_layout.soundness.programs.ops_quantised import BYTE_KINDS
from eqsat_layout.soundness.programs.ops_schema import SCHEMA_KINDS
from eqsat_layout.soundness.programs.ops_structure import LAYER_KINDS, STRUCTURE_KINDS, SYMBOLIC_KINDS
from eqsat_layout.soundness.programs.ops_tir import TIR_KINDS
from eqsat_layout.soundness.programs.outcomes import (
    FAILED,
    SAME,
    UNCHANGED,
    UNRUN,
    ProgramFailure,
    ProgramOutcome,
    ProgramReport,
)
from eqsat_layout.soundness.programs.shrink import shrunk
from eqsat_layout.soundness.programs.trial import check_program
from eqsat_layout.soundness.programs.tried import EXACTLY
from eqsat_layout.soundness.rules.known_ops import stays_inside
from eqsat_layout.soundness.rules.ops import usual_call
from eqsat_layout.soundness.rules.schema import drawn
from eqsat_layout.tir.structural import nodes_of

MANY = 700


@pytest.fixture(scope="module")
def chosen() -> list[Choices]:
    return [Choices.of_seed(seed) for seed in range(MANY)]


@pytest.fixture(scope="module")
def many(chosen: list[Choices]) -> list[RandomProgram]:
    return [make_program(choices) for choices in chosen]


def test_every_family_of_ops_occurs_and_every_program_is_well_formed(many: list[RandomProgram]) -> None:
    found: Counter[str] = Counter()
    for made in many:
        relax.analysis.well_formed(made.module)
        found.update(made.kinds)
    kinds = ANY_KINDS | FLOAT_KINDS | NETWORK_KINDS | TIR_KINDS | SCHEMA_KINDS
    kinds |= STRUCTURE_KINDS | SYMBOLIC_KINDS | LAYER_KINDS | BYTE_KINDS | EDGE_KINDS
    assert {kind.__name__ for kind, weight in kinds.items() if weight} == set(found)


def test_programs_have_what_real_modules_have(many: list[RandomProgram]) -> None:
    found: Counter[str] = Counter()
    for made in many:
        functions = [f for f in made.module.functions.values() if isinstance(f, relax.Function)]
        found["several functions"] += len(functions) > 1
        found["private"] += any(f.attrs is None or "global_symbol" not in f.attrs for f in functions)
        found["frozen"] += any(f.attrs is not None and FROZEN_ATTRIBUTE in f.attrs for f in functions)
        found["desired"] += "desired_layouts" in made.options
        main = made.module["main"]
        found["blocks"] += len(main.body.blocks) > 1
        found["results"] += isinstance(main.ret_ty, relax.TupleType)
        wholes = [p.ty for p in main.params if isinstance(p.ty, relax.TupleType)]
        found["tuple parameters"] += bool(wholes)
        found["nested tuple parameters"] += any(isinstance(f, relax.TupleType) for ty in wholes for f in ty.fields)
        tensors = [p.ty for p in main.params if isinstance(p.ty, relax.TensorType)]
        found["symbolic"] += bool(relax.analysis.defined_symbolic_vars(main))
        found["scalars"] += any(ty.ndim == 0 for ty in tensors)
        shapes = [[int(e) for e in ty.shape.values if not hasattr(e, "name")] for ty in tensors]
        found["empty"] += any(0 in shape for shape in shapes)
        found.update({str(ty.dtype) for ty in tensors})
    expected = [
        "several functions",
        "private",
        "frozen",
        "desired",
        "blocks",
        "results",
        "tuple parameters",
        "nested tuple parameters",
        "symbolic",
    ]
    expected += ["scalars", "empty", "float32", "float16", "float64", "int32", "int8", "uint8", "int64", "bool"]
    assert [name for name in expected if not found[name]] == []


def test_ops_are_drawn_whatever_they_give_take_or_are_lowered_by(many: list[RandomProgram]) -> None:
    """None with several results was, nor one that a library sorts for, nor one that takes no tensor at all."""
    found = {name for made in many for name in ops_in(made.module)}
    assert len({"relax.topk", "relax.sort", "relax.argsort", "relax.cumprod"} & found) >= 2
    assert {"relax.zeros", "relax.ones", "relax.arange", "relax.eye", "relax.hamming_window"} <= found
    assert {"relax.shape_of", "relax.shape_to_tensor"} <= found
    fields = [binding.value.ty.fields for made in many for binding in _bindings(made) if _is_call_of_several(binding)]
    assert len(fields) >= 5


def _bindings(made: RandomProgram) -> list[Any]:
    functions = [f for f in made.module.functions.values() if isinstance(f, relax.Function)]
    return [binding for f in functions for block in f.body.blocks for binding in block.bindings]


def _is_call_of_several(binding: Any) -> bool:
    value = getattr(binding, "value", None)
    name = str(getattr(getattr(value, "op", None), "name", "relax.split"))
    return name not in ("relax.split", "relax.call_tir") and isinstance(value.ty, relax.TupleType)


def test_zeros_of_bytes_are_often_known_at_run_time_only(many: list[RandomProgram]) -> None:
    """A wrong one was not found in a minute: one program in a hundred had any."""
    functions = [f for made in many for f in made.module.functions.values() if isinstance(f, relax.Function)]
    products = [p for f in functions for p in _byte_products(f) if not p.data.has_known_zero]
    assert len(products) > MANY // 40
    assert any(str(p.data.zero.ty.dtype) != str(p.data.values.ty.dtype) for p in products)


def _byte_products(function: Any) -> list[ByteProduct]:
    reader = QuantisedReader.of(function)
    values = (binding.value for binding in nodes_of(function, relax.VarBinding))
    return [found for value in values if (found := byte_product_of(value, reader)) is not None]


def test_kernels_that_no_op_has_are_drawn() -> None:
    """None had a predicate, a state, a loop until a condition, or sums of narrow integers over lanes."""
    made = [make_program(Choices.of_seed(seed), mostly=kernel) for seed in range(12)]
    names = {str(var.name_hint).rstrip("0123456789") for one in made for var in one.module.functions}
    assert "sums" in names
    assert len(names & set(BODIES)) > len(BODIES) // 2


def test_calls_that_read_beyond_their_operands_are_none() -> None:
    """TVM takes a gradient of any shape for one of a pool, and reads what lies behind it: two runs differed."""
    window = {"pool_size": [2, 3], "strides": [2, 2], "padding": [0] * 4, "dilation": [1, 1], "ceil_mode": False}
    window |= {"count_include_pad": False, "layout": "NCHW", "out_layout": "NCHW"}
    types = [TensorType(shape, "float64") for shape in ((1, 3, 4, 1), (1, 3, 4, 4))]
    call = drawn("relax.grad.max_pool2d_backward", types, random.Random(0), exact=True, kept=window)
    assert call.values == window
    assert call.is_computable
    assert not stays_inside(call)
    right = usual_call("relax.grad.max_pool2d_backward")
    assert right is not None
    assert stays_inside(right)


def test_the_same_choices_make_the_same_program() -> None:
    choices = Choices.of_seed(5)
    first = make_program(choices)
    again = make_program(Choices.of_record(choices.record))
    assert tvm_ffi.structural_equal(first.module, again.module)
    assert first.options == again.options
    assert first.text() == again.text()
    assert not tvm_ffi.structural_equal(first.module, make_program(Choices.of_seed(6)).module)


@settings(max_examples=tries(15), suppress_health_check=list(HealthCheck))
@given(programs())
def test_hypothesis_makes_programs(made: RandomProgram) -> None:
    relax.analysis.well_formed(made.module)


def test_a_record_that_ends_makes_the_simplest_program() -> None:
    smallest = make_program(Choices.of_record([]))
    assert smallest.kinds == ()
    relax.analysis.well_formed(smallest.module)


def doubled(builder: Any, x: Any) -> Any:
    return builder.emit(R.multiply(x, relax.const(2.0, "float32")))


def test_differences_of_numbers_and_interfaces_are_found() -> None:
    before = program(doubled, (2, 3))
    assert interface_difference(before, before) == ""
    assert "type" in interface_difference(before, program(doubled, (3, 2)))
    one, two = np.ones((2, 3), "float32"), np.full((2, 3), 1.01, "float32")
    assert difference_up_to_order(one, one * np.float32(1 + 1e-6)) == ""
    assert "6 of 6 elements" in difference_up_to_order(one, two)
    assert difference_up_to_order(one, one[:1]) == "is float32(1, 3) instead of float32(2, 3)"
    assert difference_up_to_order(np.array([1, 2]), np.array([1, 3])) == "differs in 1 of 2 elements"


def test_a_program_that_amplifies_rounding_is_told_from_a_wrong_one() -> None:
    def steep(builder: Any, x: Any) -> Any:
        for _ in range(3):
            x = builder.emit(R.sin(builder.emit(R.multiply(x, relax.const(300.0, "float32")))))
        return x

    def shifted(amount: float) -> Any:
        def body(builder: Any, x: Any) -> Any:
            return steep(builder, builder.emit(R.add(x, relax.const(amount, "float32"))))

        return body

    pair = Pair(program(steep, (4, 4)), program(shifted(1e-6), (4, 4)))
    (case,) = pair.cases(0)
    assert difference_up_to_order(case.before[0], case.after[0])
    assert pair.is_noise(case)
    plain = Pair(program(doubled, (4, 4)), program(lambda b, x: b.emit(R.add(x, relax.const(1.0, "float32"))), (4, 4)))
    (case,) = plain.cases(0)
    assert difference_up_to_order(case.before[0], case.after[0])
    assert not plain.is_noise(case)


SEED = 2
"""Of inputs; one with which programs are optimised once, and the interpreter is not asked."""
BAD_RULE = """
(rewrite (Op k (Arg x (End))) x :when ((is k "relax.nn.relu")) :ruleset logical :name "relu is nothing")
"""


def asks(*rules: Path) -> Callable[[Sequence[int] | None, int], ProgramOutcome]:
    def ask(record: Sequence[int] | None, seed: int) -> ProgramOutcome:
        return check_program(Choices.of_seed(seed) if record is None else Choices.of_record(record), seed, rules)

    return ask


def test_an_unsound_rule_is_found_and_the_program_shrunk(
    chosen: list[Choices], many: list[RandomProgram], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.egg"
    bad.write_text(BAD_RULE)
    ask = asks(bad)
    sizes = {seed: len(chosen[seed].record) for seed in range(300) if may_be_wrong(many[seed].module.script())}
    failed = next(
        outcome for seed in sorted(sizes, key=sizes.__getitem__) if (outcome := ask(None, seed)).kind == FAILED
    )
    smallest = shrunk(failed, SEED, until_smaller(ask, failed), tries=300)
    assert smallest.kind == FAILED
    assert smallest.why == failed.why
    assert len(smallest.record) < len(failed.record)
    assert smallest.program.count("R.") < failed.program.count("R.")
    assert ask(smallest.record, SEED).why == failed.why
    assert asks()(smallest.record, SEED).kind != FAILED  # the rule is to blame


def until_smaller(ask: Any, failed: ProgramOutcome) -> Any:
    """``ask`` until it has found a smaller program that fails in the same way; nothing fails then."""
    found: list[ProgramOutcome] = []

    def asked(record: Sequence[int], seed: int) -> ProgramOutcome:
        if found:
            return ProgramOutcome(SAME)
        outcome: ProgramOutcome = ask(record, seed)
        if outcome.why == failed.why and len(outcome.record) < len(failed.record):
            found.append(outcome)
        return outcome

    return asked


def may_be_wrong(text: str) -> bool:
    """Pads of pads have many formats."""
    return "R.nn.relu(" in text and "R.nn.pad(" not in text


def test_programs_in_processes_and_the_report() -> None:
    shares: list[float] = []
    report = fuzz_programs(cases=8, jobs=2, on_progress=lambda report, share: shares.append(share))
    assert report.is_clean, str(report)
    assert report.programs == len(shares) == 8
    assert shares[-1] == 1.0
    assert report.compared >= 3
    assert "8 programs" in str(report)
    assert {"make", "optimize"} <= set(report.stages)


def test_a_process_that_dies_is_a_failure_of_its_program_only() -> None:
    worker = Worker()
    try:
        assert worker.ask(None, 0).kind in (SAME, UNCHANGED)
        worker._process.kill()
        died = worker.ask(None, 1)
        assert (died.kind, died.why) == (FAILED, "the process died of SIGKILL")
        assert "def main" in died.program
        assert worker.ask(None, 1).kind in (SAME, UNCHANGED)
    finally:
        worker.close()


def test_a_failure_shows_how_to_see_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    failure = ProgramFailure(7, "numbers", "main: result 0 differs", "the module", (1, 2))
    assert failure.command.endswith("eqsat_layout.soundness.programs.fuzzer 7")
    report = ProgramReport(0, failures=[failure])
    report.add(ProgramOutcome(FAILED, "numbers", "main: result 0 differs"))
    assert not report.is_clean
    assert failure.command in str(report)
    assert main(["7"]) == 0
    assert "seed 7: " in capsys.readouterr().out


@pytest.mark.parametrize(("said", "kind"), [("result 0 differs", FAILED), ("", SAME), (None, UNRUN)])
def test_programs_are_compiled_exactly_where_that_is_asked(
    monkeypatch: pytest.MonkeyPatch, said: str | None, kind: str
) -> None:
    monkeypatch.setattr(trial, "compiled_difference", lambda program, seed: said)
    assert check_program(Choices.of_seed(0), 0, target=EXACTLY).kind == kind


def test_a_fault_that_is_worked_around_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of a kernel that is not scheduled are right, and the fault that it is not was hidden."""

    class Ended:
        def send(self, _: str) -> None: ...

        def recv(self) -> Any:
            raise EOFError

    monkeypatch.setenv(STRICT_VARIABLE, "0")
    monkeypatch.delenv(STRICT_VARIABLE)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    jobs._serve(Ended())
    assert is_strict()


def test_a_process_may_be_slow_to_start_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a minute of the clock the run ended with an error, whatever the process had got of the processor."""
    monkeypatch.setattr(jobs, "PATIENCE", 0.05)
    monkeypatch.setattr(jobs, "_IDLE", 0.0)
    monkeypatch.setattr(jobs, "_worked", lambda process: 0.0)
    worker = Worker()
    try:
        worker._start()
        assert worker._process.is_alive()
    finally:
        worker.close()


def test_a_process_hangs_when_it_worked_or_idled_too_long() -> None:
    """On a busy machine a program that was only slow was said to hang; so was one whose process others stopped for a
    while, or left no time."""
    before = _worked(os.getpid())
    sum(range(10_000_000))
    assert 0 < _worked(os.getpid()) - before < 30
    worker = Worker()
    try:
        assert worker.ask((), 2).kind == UNCHANGED
        assert not worker._answers(0.3)  # nothing is asked of it
        os.kill(worker._process.pid, signal.SIGSTOP)
        threading.Timer(1.5, os.kill, (worker._process.pid, signal.SIGCONT)).start()
        worker.patience = 0.6
        assert worker.ask((), 2).kind == UNCHANGED
    finally:
        worker.close()


def test_failures_of_one_place_are_told_apart() -> None:
    """All kernels that can't be built were one failure, whatever the cause: one that is known hid the others."""

    def why(said: str) -> str:
        def fails(*_: object, **__: object) -> None:
            raise RuntimeError(said)

        return check_program(Choices.of_seed(1), 1, optimizer=fails).why

    assert why("kernel add_6fb6 can't be built: uint8 vs. int64") == why(
        "kernel conv2d_4 can't be built: int8 vs. int32"
    )
    assert why("kernel add_6fb6 can't be built: mismatched types") != why("kernel add_6fb6 can't be built: no schedule")
