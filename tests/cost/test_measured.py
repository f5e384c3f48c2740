"""Costs from measurements: what was measured counts, the rest is brought to its scale, fusion saves what it can."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax, te, tirx

from eqsat_layout.cost.database import Database, Snapshot
from eqsat_layout.cost.kernel_key import computation_text, copy_key, kernel_key
from eqsat_layout.cost.measured import MeasuredCosts
from eqsat_layout.cost.measurements import KernelKey, Measured
from eqsat_layout.cost.model import RESULT, Roofline
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.graph.importer import import_module
from eqsat_layout.maps import Format, IndexMap
from eqsat_layout.tir.signature import analyse

MACHINE, VERSION = "this one", "1.0"
MODEL = Roofline()
X = TensorType((1, 16, 12, 12), "float32")
PLAIN = Format.row_major(X.shape)
LAST = Format.make(IndexMap.permutation(X.shape, (0, 2, 3, 1)))


def program() -> dict[str, Signature]:
    """A convolution, two elementwise ops and a pooling, by name."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(X.shape, X.dtype))
    w = relax.Var("w", relax.TensorType((16, 16, 3, 3), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, w, padding=1))
            y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(y, x))))
            output = builder.emit_output(relax.op.nn.max_pool2d(y, (2, 2), (2, 2)))
        builder.emit_func_output(output)
    return {
        s.name.removeprefix("relax.").removeprefix("nn."): s for s in import_module(builder.get()).signatures.values()
    }


OPS = program()
CONV, ADD, RELU, POOL = OPS["conv2d"], OPS["add"], OPS["relu"], OPS["max_pool2d"]


def plain(op: Signature) -> tuple[list[Format], list[Format]]:
    formats = [[Format.row_major(t.shape) for t in types if t is not None] for types in (op.operands, op.results)]
    return formats[0], formats[1]


def measured(key: KernelKey | None, seconds: float) -> Measured:
    assert key is not None
    return Measured(MACHINE, key, seconds, 0.0, 5, VERSION, "2026-01-01T00:00:00Z")


def of_op(op: Signature, seconds: float, fmt: Format = PLAIN) -> Measured:
    assert op.computation is not None
    operands, results = plain(op)
    swap = [[fmt if f == PLAIN else f for f in side] for side in (operands, results)]
    return measured(kernel_key(op.computation, *swap), seconds)


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory):
    """Costs that know these records."""

    def costs(*records: Measured, ops: Sequence[Signature] = tuple(OPS.values()), model: Roofline = MODEL):
        database = Database(tmp_path_factory.mktemp("measured"))
        database.add(*records)
        return MeasuredCosts(database.read(), model, MACHINE, VERSION, ops)

    return costs


def test_without_measurements_the_model_is_asked(make) -> None:
    elsewhere = replace(of_op(RELU, 5.0), machine="another")
    older = replace(of_op(RELU, 5.0), version="0.9")
    for costs in (MeasuredCosts(Snapshot(), MODEL, MACHINE, VERSION), make(elsewhere, older)):
        for op in OPS.values():
            for fused in (frozenset(), frozenset({0}), frozenset({RESULT})):
                assert costs.run(op, *plain(op), fused=fused) == MODEL.run(op, *plain(op), fused=fused)
        assert costs.convert(X, PLAIN, LAST, fused=True) == MODEL.convert(X, PLAIN, LAST, fused=True)
        assert costs.constant(X, LAST) == MODEL.constant(X, LAST)


def test_a_measured_kernel_costs_what_was_measured(make) -> None:
    costs = make(of_op(CONV, 3.0), of_op(RELU, 2.0), of_op(RELU, 4.0, LAST))
    assert costs.run(CONV, *plain(CONV)) == 3.0
    assert costs.run(RELU, [PLAIN], [PLAIN]) == 2.0
    assert costs.run(RELU, [LAST], [LAST]) == 4.0


def test_a_measured_copy_costs_what_was_measured(make) -> None:
    costs = make(measured(copy_key(X, PLAIN, LAST), 0.5))
    assert costs.convert(X, PLAIN, LAST) == 0.5
    half = TensorType(X.shape, "float16")
    scale = 0.5 / MODEL.convert(X, PLAIN, LAST)
    for tensor, before, after in ((X, LAST, PLAIN), (half, PLAIN, LAST)):
        assert costs.convert(tensor, before, after) == pytest.approx(scale * MODEL.convert(tensor, before, after))


@settings(max_examples=30, deadline=None)
@given(factor=st.floats(1e-3, 1e3))
def test_a_model_that_is_off_by_a_factor_biases_no_choice(make, factor: float) -> None:
    """If all that was measured is ``factor`` times what the model says, so is everything that was not."""
    records = [of_op(op, factor * MODEL.run(op, *plain(op))) for op in (CONV, RELU)]
    records.append(measured(copy_key(X, PLAIN, LAST), factor * MODEL.convert(X, PLAIN, LAST)))
    costs = make(*records)
    for op in OPS.values():
        for fused in (frozenset(), frozenset({RESULT})):
            assert costs.run(op, *plain(op), fused=fused) == pytest.approx(
                factor * MODEL.run(op, *plain(op), fused=fused)
            )
    assert costs.run(RELU, [LAST], [LAST]) == pytest.approx(factor * MODEL.run(RELU, [LAST], [LAST]))
    for fused in (False, True):
        assert costs.convert(X, PLAIN, LAST, fused=fused) == pytest.approx(
            factor * MODEL.convert(X, PLAIN, LAST, fused=fused)
        )
    assert costs.constant(X, PLAIN) == pytest.approx(factor * MODEL.constant(X, PLAIN))


def test_an_op_has_the_scale_of_its_own_layouts_then_of_its_kind(make) -> None:
    conv, relu = MODEL.run(CONV, *plain(CONV)), MODEL.run(RELU, *plain(RELU))
    costs = make(of_op(CONV, 8 * conv), of_op(RELU, 2 * relu))
    operands, _ = plain(CONV)
    in_last = ([LAST, operands[1]], [LAST])
    assert costs.run(CONV, *in_last) == pytest.approx(8 * MODEL.run(CONV, *in_last))
    assert costs.run(RELU, [LAST], [LAST]) == pytest.approx(2 * MODEL.run(RELU, [LAST], [LAST]))
    assert costs.run(POOL, *plain(POOL)) == pytest.approx(2 * MODEL.run(POOL, *plain(POOL)))
    assert costs.convert(X, PLAIN, LAST) == pytest.approx(5 * MODEL.convert(X, PLAIN, LAST))  # between 2 and 8


def test_an_op_that_the_program_did_not_tell_of_has_its_own_scale_too(make) -> None:
    costs = make(of_op(RELU, 3 * MODEL.run(RELU, *plain(RELU))), ops=())
    assert costs.run(RELU, [LAST], [LAST]) == pytest.approx(3 * MODEL.run(RELU, [LAST], [LAST]))
    assert costs.run(POOL, *plain(POOL)) == MODEL.run(POOL, *plain(POOL))


@settings(max_examples=60, deadline=None)
@given(
    seconds=st.floats(1e-9, 1.0),
    slow=st.floats(0.01, 100),
    fused=st.sets(st.sampled_from([0, 1, RESULT])).map(frozenset),
)
def test_fusion_leaves_at_least_the_share_that_is_modelled(
    make, seconds: float, slow: float, fused: frozenset[int]
) -> None:
    copy = measured(copy_key(X, PLAIN, LAST), slow * MODEL.convert(X, PLAIN, LAST))
    costs = make(of_op(ADD, seconds), copy)
    alone, inside = costs.run(ADD, *plain(ADD)), costs.run(ADD, *plain(ADD), fused=fused)
    assert alone == seconds
    share = MODEL.run(ADD, *plain(ADD), fused=fused) / MODEL.run(ADD, *plain(ADD))
    assert share * alone * 0.999 <= inside <= alone
    assert inside > 0 or share == 0


def test_a_slow_kernel_saves_what_its_traffic_takes_and_no_more(make) -> None:
    """Of a convolution that is slower than modelled, fusion saves the write of its result, not a share of the rest."""
    ratio = MODEL.convert(X, PLAIN, LAST)
    costs = make(of_op(ADD, 1.0), measured(copy_key(X, PLAIN, LAST), ratio))
    saved = MODEL.run(ADD, *plain(ADD)) - MODEL.run(ADD, *plain(ADD), fused=frozenset({RESULT}))
    assert saved > 0
    assert costs.run(ADD, *plain(ADD), fused=frozenset({RESULT})) == pytest.approx(1.0 - saved, abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(list(OPS)), twice=st.booleans())
def test_the_answer_does_not_depend_on_what_was_asked_before(make, order: list[str], twice: bool) -> None:
    records = (of_op(CONV, 1.0), of_op(RELU, 2.0), measured(copy_key(X, PLAIN, LAST), 3.0))
    costs = make(*records)
    expected = {name: MeasuredCosts.run(make(*records), OPS[name], *plain(OPS[name])) for name in OPS}
    for name in order * (2 if twice else 1):
        assert costs.run(OPS[name], *plain(OPS[name])) == expected[name]


def test_ops_of_other_programs_may_have_the_same_key(make) -> None:
    costs = make(of_op(RELU, 2.0), of_op(ADD, 3.0))
    other = replace(RELU, computation=elementwise(X.shape, "x"))
    for _ in range(2):
        assert costs.run(RELU, [PLAIN], [PLAIN]) == 2.0
        assert costs.run(other, [PLAIN], [PLAIN]) not in (2.0, 3.0)


def test_records_of_formats_that_are_none_are_passed_over(make) -> None:
    key = kernel_key(RELU.computation, [PLAIN], [PLAIN])
    assert key is not None
    strange = [replace(key, formats=formats) for formats in (("what", "?"), ("8>a", "8>a"), ("8>a",))]
    costs = make(*(measured(k, 1e3) for k in strange))
    assert costs.run(RELU, [PLAIN], [PLAIN]) == MODEL.run(RELU, [PLAIN], [PLAIN])


def test_symbolic_sizes_are_modelled(make) -> None:
    tensor = TensorType(("n", 16), "float32")
    fmt = Format.row_major(tensor.shape)
    swapped = Format.make(IndexMap.permutation(tensor.shape, (1, 0)))
    costs = make(of_op(CONV, MODEL.run(CONV, *plain(CONV))))
    assert copy_key(tensor, fmt, swapped) is None
    assert costs.convert(tensor, fmt, swapped) == MODEL.convert(tensor, fmt, swapped)


# What a kernel is known by


def elementwise(shape: tuple[object, ...], name: str, dtype: str = "float32", factor: float = 2.0, step: int = 1):
    operand = te.placeholder(shape, dtype, name=name)
    result = te.compute(
        shape, lambda *i: operand[(*i[:-1], i[-1] // step)] * tirx.const(factor, dtype), name=f"{name}_made"
    )
    return analyse(te.create_prim_func([operand, result], index_dtype_override="int64"))


def key_text(name: str) -> str:
    key = kernel_key(elementwise((4, 8), name), [Format.row_major((4, 8))], [Format.row_major((4, 8))])
    assert key is not None
    return f"{key.computation} {key.formats}"


def test_names_processes_and_hash_seeds_are_not_in_a_key() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import test_measured; print(test_measured.key_text('other'))"
    run = [sys.executable, "-c", code, str(Path(__file__).parent)]
    printed = subprocess.run(run, env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == key_text("a_name")


def test_what_a_kernel_computes_is_in_its_key() -> None:
    kernels = [
        elementwise((4, 8), "x"),
        elementwise((8, 4), "x"),
        elementwise((4, 8), "x", dtype="float16"),
        elementwise((4, 8), "x", factor=3.0),
        elementwise((4, 8), "x", step=2),
        RELU.computation,
        POOL.computation,
        CONV.computation,
    ]
    texts = [computation_text(k) for k in kernels if k is not None]
    assert len(set(texts)) == len(kernels)
    assert None not in texts


def test_the_text_of_a_kernel_stays_as_it_is() -> None:
    """If this changes, all databases forget their kernels."""
    computation = elementwise((4, 8), "x")
    assert computation is not None
    assert computation_text(computation) == "\n".join(
        (
            "4x8 float32 global operand",
            "4x8 float32 global result",
            "(0,) (1,) ()",
            "spatial:4 spatial:8",
            "b1[1*(i0/1%4) + 0, 1*(i1/1%8) + 0] = "
            "Mul:float32(b0[1*(i0/1%4) + 0, 1*(i1/1%8) + 0], const:float32 '0x1.0000000000000p+1'())",
        )
    )


def test_kernels_of_symbolic_sizes_have_no_key() -> None:
    computation = elementwise((te.var("n", "int64"), 8), "x")
    assert computation is not None
    assert computation_text(computation) is None


def test_a_format_is_read_back_from_a_key() -> None:
    key = kernel_key(RELU.computation, [LAST], [PLAIN])
    assert key is not None
    assert [Format.from_key(text) for text in key.formats] == [LAST, PLAIN]
