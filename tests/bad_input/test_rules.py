"""Rule files that are malformed, or whose rules have no end: one row for each.

Rows that could hang run in a process of their own, with a time limit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bad_input.rows import Row, check, options

from eqsat_layout.egraph.limits import Limits
from eqsat_layout.errors import EqsatError, RuleError

SECONDS = 60
"""Far more than any row takes."""
SOON = Limits(steps=150, seconds=1, megabytes=300)
STEPS = Limits(steps=150, seconds=SECONDS, megabytes=300)
"""For rows that are stopped by their steps, on a busy machine too."""


def rules(text: str | bytes, **options: Any) -> Callable[[Path], dict[str, Any]]:
    """A rule file of this text."""

    def given(folder: Path) -> dict[str, Any]:
        path = folder / "mine.egg"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return {"rules": [path], **options}

    return given


ENDLESS = {
    "logical": "(rule ((= y (Op k a))) ((n 0)) :ruleset logical)\n"
    '(rule ((n i)) ((n (+ i 1))) :ruleset logical :name "up")',
    "flow": '(rule ((want y f)) ((n 0)) :ruleset flow)\n(rule ((n i)) ((n (+ i 1))) :ruleset flow :name "up")',
    "build": '(rule ((want y f)) ((n 0)) :ruleset build)\n(rule ((n i)) ((n (+ i 1))) :ruleset build :name "up")',
}


RULE_ROWS = [
    Row("rule file never closed", rules("(relation a (i64)\n"), RuleError, ["mine.egg:1:1", "never closed"]),
    Row("rule file closed twice", rules("(relation a (i64))\n)"), RuleError, ["mine.egg:2:1", "closing"]),
    Row("rule file of prose", rules("x + 0 = x"), RuleError, ["mine.egg:1:1", "expected a command"]),
    Row("string never closed", rules('(rule ((is k "abc)) ()'), RuleError, ["mine.egg:1:1"]),
    Row("empty command", rules("()"), RuleError, ["mine.egg:1"]),
    Row("unknown command", rules("\n(theorem x)"), RuleError, ["mine.egg:2", "theorem"]),
    Row("unknown sort", rules("(relation a (Nonsense))"), RuleError, ["mine.egg:1", "Nonsense"]),
    Row("unknown relation", rules("(rule ((nothing x)) () :ruleset flow)"), RuleError, ["mine.egg:1", "nothing"]),
    Row("unknown ruleset", rules("(rule ((want y f)) () :ruleset later)"), RuleError, ["mine.egg:1", "later"]),
    Row("too few columns", rules("\n(rule ((want y)) () :ruleset flow)"), RuleError, ["mine.egg:2:8", "not 1"]),
    Row("wrong arity", rules("\n(rule ((want y f g)) () :ruleset flow)"), RuleError, ["mine.egg:2", "want"]),
    Row("wrong sort", rules("(rule ((want y f)) ((want f y)) :ruleset flow)"), RuleError, ["mine.egg:1"]),
    Row("unbound variable", rules("(rule ((want y f)) ((want y g)) :ruleset flow)"), RuleError, ["mine.egg:1", "g"]),
    Row(
        "duplicate rule", rules('(rule ((want y f)) () :ruleset flow :name "back")'), RuleError, ["mine.egg:1", "back"]
    ),
    Row("duplicate relation", rules("(relation want (i64))"), RuleError, ["mine.egg:1", "want"]),
    Row("duplicate sort", rules("(sort Tensor)"), RuleError, ["mine.egg:1", "Tensor"]),
    Row(
        "a number too large",
        rules("(relation a (i64))\n(rule ((a 99999999999999999999999)) ())"),
        RuleError,
        ["mine.egg:2"],
    ),
    Row(
        "Python in a rule",
        rules('(rule ((want y f)) ((py-exec "1")) :ruleset flow)'),
        RuleError,
        ["mine.egg:1", "py-exec"],
    ),
    Row("Python at the top", rules('(let x (py-eval "1"))'), RuleError, ["mine.egg:1", "py-eval"]),
    Row("reads a file", rules('(input want "/etc/passwd")'), RuleError, ["mine.egg:1", "input"]),
    Row("writes a file", rules('(output want "out.csv")'), RuleError, ["mine.egg:1", "output"]),
    Row("includes a file", rules('(include "other.egg")'), RuleError, ["mine.egg:1", "include"]),
    Row("sets a schedule", rules("(run-schedule (saturate (run flow)))"), RuleError, ["mine.egg:1", "run-schedule"]),
    Row("runs", rules("(run flow 1000000)"), RuleError, ["mine.egg:1", "run"]),
    Row("pops what others pushed", rules("(pop)"), RuleError, ["mine.egg:1", "pop"]),
    Row("no UTF-8", rules(b"\xff\xfe\x00(relation)"), RuleError, ["mine.egg", "can't read"]),
    Row("a zero byte", rules("(relation a\0b (i64))\n(relation a\0b (i64))"), RuleError, ["mine.egg"]),
    Row("a rule file that is a folder", lambda folder: {"rules": [folder]}, RuleError, ["can't read"]),
    Row("a rule file that is not there", options(rules=["nowhere.egg"]), RuleError, ["nowhere.egg", "can't read"]),
    Row("a rule file without a name", options(rules=[None]), EqsatError, ["rules", "None"]),
    Row("rules that are one text", options(rules="mine.egg"), EqsatError, ["rules"]),
    Row(
        "nobody answers",
        rules("(relation ask-me (Tensor))\n(rule ((want y f)) ((ask-me y)) :ruleset flow)"),
        RuleError,
        ["ask-me", "answers"],
    ),
    Row(
        "an answer asked with too little",
        rules("(relation ask-own (String))\n(rule ((want y f)) ((ask-back f f)) :ruleset flow)"),
        None,
    ),
    Row("a deep rule", rules("(rule (" + "(= x " * 2000 + "1" + ")" * 2000 + ") ())"), RuleError, ["mine.egg:1"]),
    Row("an empty rule file", rules(""), None, ["mine.egg: there is no rule in it"]),
    Row("a file of comments", rules("; nothing\n; (run 10)"), None),
]


HANGING = {
    "terms without end": """
(rule ((= y (Op k a)) (= a (Arg x r)) (is k "relax.nn.relu"))
      ((Op k (Arg y r))) :ruleset logical :name "up")""",
    "text that doubles": """(relation s (String))
(rule ((= y (Op k a))) ((s "ab")) :ruleset logical)
(rule ((s x)) ((s (+ x x))) :ruleset logical :name "up")""",
    "a step that never ends": """(relation n (i64 i64))
(rule ((= y (Op k a))) ((n 0 1)) :ruleset logical)
(rule ((n i j) (n k l)) ((n (+ i l) (+ j k)) (n (+ (* 3 i) l) (* 2 (+ j k)))) :ruleset logical :name "up")""",
    "questions without end": """(relation s (String))
(rule ((want y f) (= y (Op k a))) ((s f)) :ruleset flow)
(rule ((s f) (= y (Op k a))) ((ask-back k f) (s (+ f "x"))) :ruleset flow :name "up")""",
}


HANGING_ROWS = [
    *(
        Row(
            f"a rule without end in {phase}",
            rules(f"(relation n (i64))\n{text}", limits=STEPS),
            None,
            [f"phase {phase!r} were stopped by the limit of 150 steps; still at work: rule 'up' of mine.egg:3"],
        )
        for phase, text in ENDLESS.items()
    ),
    *(Row(name, rules(text, limits=SOON), None, ["stopped by the limit of", "'up'"]) for name, text in HANGING.items()),
]


def test_rules_without_end_are_stopped(tmp_path: Path) -> None:
    environment = {**os.environ, "EQSAT_LAYOUT_CACHE": str(tmp_path / "cache")}
    paths = [str(Path(__file__).parents[1]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    command = [sys.executable, __file__, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=4 * SECONDS, env=environment)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.splitlines() == [row.name for row in HANGING_ROWS]


@pytest.mark.parametrize("row", RULE_ROWS, ids=lambda row: row.name)
def test_bad_rules(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_LAYOUT_CACHE", str(tmp_path / "cache"))
    check(row, tmp_path)


if __name__ == "__main__":
    for hanging in HANGING_ROWS:
        check(hanging, Path(sys.argv[1]))
        print(hanging.name, flush=True)
