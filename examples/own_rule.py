"""A rule of your own: an equation in a file, looked at for instances in which it is wrong, then used.

``rules/README.md`` gives the language and the laws for authors.
"""

import tempfile
from pathlib import Path

from tvm import relax

import eqsat_layout

RULE = """
; -(-x) == x
(rewrite (Op k (Arg (Op k (Arg x (End))) (End))) x
    :when ((is k "relax.negative")) :ruleset logical :name "twice negative")
"""


def program() -> object:
    """A ReLU behind two negations."""
    x = relax.Var("x", relax.TensorType((1, 8, 16, 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.negative(builder.emit(relax.op.negative(x))))
            result = builder.emit_output(relax.op.nn.relu(y))
        builder.emit_func_output(result)
    return builder.get()


with tempfile.TemporaryDirectory() as folder:
    mine = Path(folder) / "mine.egg"
    mine.write_text(RULE)
    plan = eqsat_layout.plan(program(), rules=[mine])

print(plan)
assert plan.changed
assert "negative" not in plan.module.script()

# `eqsat-layout fuzz mine.egg` looks for a counterexample, and proves the rule where z3 is installed. In a test suite:
# eqsat_layout.soundness.assert_rules_sound("mine.egg").
