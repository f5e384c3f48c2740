"""Values of terms in models, and the formats that are theirs."""

from __future__ import annotations

from unittest.mock import MagicMock

import numpy as np
import pytest
from programs import program
from tvm.relax import op

from eqsat_layout.egraph.expressions import parse
from eqsat_layout.egraph.making import Maker
from eqsat_layout.egraph.names import Names
from eqsat_layout.egraph.op_answers import OpAnswers
from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.graph.importer import import_module
from eqsat_layout.maps import Format, IndexMap
from eqsat_layout.soundness.rules import terms
from eqsat_layout.soundness.rules.ill_typed import NotMadeError
from eqsat_layout.soundness.rules.made_ops import MadeOps
from eqsat_layout.soundness.rules.rule_base import read_rule_base
from eqsat_layout.soundness.rules.stored import lay
from eqsat_layout.soundness.rules.terms import TermEvaluator
from eqsat_layout.soundness.rules.values import Values


def test_formats_of_operands_are_no_formats_of_a_tuple() -> None:
    """Of two operands and of a split in two halves: rules were "not true" in one model of a hundred."""
    names = Names()
    plain = names.format(Format.row_major((2,)))
    values = Values(names, {}, {}, None)  # type: ignore[arg-type]
    halves = [values.intern(np.full((1, 2), value, "float32"), ("Param", str(value))) for value in (1, 2)]
    split = values.intern(tuple(halves), ("Op", "split", (halves[0],)))
    operands, results = names.operand_list([plain, plain]), names.result([plain, plain])
    assert values.fits_all(operands, tuple(halves))
    assert values.fits(results, split)
    assert not values.fits(operands, split)


def test_an_image_is_no_buffer_of_the_same_elements() -> None:
    """Formats that differ in memory alone are other storage."""
    flat = Format.row_major((2, 3))
    buffer, image = (lay(fmt, np.ones((1, 2, 3))) for fmt in (flat, Format.row_major((2, 3), "global.texture")))
    assert buffer.serves(buffer)
    assert not buffer.serves(image)
    assert not image.serves(buffer)


def test_what_is_tried_for_some_is_none_of_the_tensors() -> None:
    """All that ops made of all tensors was among them the next time: a meaning with ``some`` took a minute."""
    turn = IndexMap.permutation((2, 2, 2), (1, 2, 0))
    values = Values(Names(), {}, {"turn": turn}, MadeOps(MagicMock(), {}, {}))
    drawn = np.random.default_rng(0).random((8, 1, 2, 2, 2))
    whole = [values.intern(one, ("Param", str(n))) for n, one in enumerate(drawn)]
    others = [values.intern(one.reshape(1, 8), ("Param", "flat")) for one in drawn]
    turned = values.op("turn", (whole[0],))
    (formula,) = parse('(some k (some w (and (= x (at k w)) (named k "view"))))')
    evaluator = TermEvaluator(values, read_rule_base(rule_files()))
    assert evaluator.holds(formula, {"x": turned})
    assert not evaluator.holds(formula, {"x": others[0]})
    for _ in range(2):
        assert not evaluator.holds(formula, {"x": whole[1]})
        assert values.all() == [*whole, *others, turned]
    assert values.op("turn", (whole[1],)) in values.all()


def test_some_op_may_be_one_that_no_term_of_the_model_has() -> None:
    """Which sizes its ops are on is chance: what is the larger of itself and itself was said to be no such thing."""
    names = Names()
    signatures = import_module(program(lambda b, x, y: b.emit(op.maximum(x, y)), (1, 3), (2, 1))).signatures
    answers = OpAnswers(signatures, names, maker=Maker(dict(signatures), {}))
    values = Values(names, answers.signatures, {}, MadeOps(answers, {}, {}))
    x, y = (values.intern(np.full((1, 2, size), -1, "float32"), ("Param", str(size))) for size in (3, 2))
    evaluator = TermEvaluator(values, read_rule_base(rule_files()))
    for name, holds in (("relax.maximum", True), ("relax.add", False)):
        (formula,) = parse(f'(some k (some v (some w (and (= x (Op k (Arg v (Arg w (End))))) (named k "{name}")))))')
        assert [evaluator.holds(formula, {"x": one}) for one in (x, y)] == [holds, holds]


def test_what_some_says_is_not_looked_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three ``some`` over one another took 34 s where they were true of other tensors than the model's terms have."""
    values = Values(Names(), {}, {"turn": IndexMap.permutation((2, 2), (1, 0))}, MadeOps(MagicMock(), {}, {}))
    drawn = [values.intern(np.full((1, 2, 2), n, "float32"), ("Param", str(n))) for n in range(5)]
    evaluator = TermEvaluator(values, read_rule_base(rule_files()))
    (formula,) = parse('(some k (some w (and (= x (at k w)) (named k "view"))))')
    assert evaluator.holds(formula, {"x": drawn[1]})
    monkeypatch.setattr(terms, "_LOOKED_AT", 3)
    with pytest.raises(NotMadeError, match="no longer"):
        evaluator.holds(formula, {"x": drawn[3]})
