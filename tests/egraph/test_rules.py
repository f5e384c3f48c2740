"""Rule files: what they may hold, and where a mistake is said to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat_layout.egraph.engine import Engine
from eqsat_layout.egraph.rule_text import read_rule_text
from eqsat_layout.egraph.rules import read_all, rule_files
from eqsat_layout.errors import RuleError
from eqsat_layout.soundness.rules.rule_base import read_rule_base


def load(*files: Path) -> Engine:
    return Engine(read_all(rule_files(files)))


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.egg"
    path.write_text(text)
    return path


def test_own_rules_load_in_order() -> None:
    files = rule_files()
    assert files[0].name == "00-core.egg"
    load()


def test_own_rules_are_what_the_reader_reads_and_takes(tmp_path: Path) -> None:
    """Those of the package are split where commands begin lines, and not checked, in a plan without others."""
    for file in rule_files():
        forms = read_rule_text(file.read_text(), str(file)).forms
        commands = [(command.text, command.line, command.column) for command in read_all([file])]
        assert commands == [(form.text, form.line, form.column) for form in forms]
    assert read_all(rule_files([written(tmp_path, "")])) == read_all(rule_files())  # which checks all


def test_rule_files_may_have_a_byte_order_mark_and_other_ends_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "mine.egg"
    path.write_bytes(b"\xef\xbb\xbf; mine\r\n(relation mine (Tensor))\r\n(relation yours (Tensor))\n")
    own = [command for command in read_all(rule_files([path])) if command.file == str(path)]
    assert [(command.text, command.line) for command in own] == [
        ("(relation mine (Tensor))", 2),
        ("(relation yours (Tensor))", 3),
    ]


def test_every_own_rule_has_a_name_and_an_equation_over_it() -> None:
    for file in rule_files():
        lines = file.read_text().splitlines()
        for command in read_all([file]):
            if not command.text.startswith("(rule "):
                continue
            assert ":name" in command.text, f"{file.name}:{command.line}"
            above = command.line - 2
            while above >= 0 and lines[above].strip() and not lines[above].lstrip().startswith(";"):
                above -= 1  # the rules of one group stand under one equation
            assert lines[above].lstrip().startswith(";") or file.name == "00-core.egg", f"{file.name}:{command.line}"


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("; fine\n(relation a (i64))\n(rule ((a x))\n      ((a y)))\n", "mine.egg:4:", "Unbound symbol y"),
        ("(relation a (i64)\n", "mine.egg:1:1", "never closed"),
        ("(relation a (i64))\n  )\n", "mine.egg:2:3", "closing parenthesis"),
        ("(relation a (i64))\nrelation b\n", "mine.egg:2:1", "expected a command"),
        ("(relation a (Nonsense))\n", "mine.egg:1:", "Nonsense"),
        ("\n\n(rule ((want y f)) ((want y)) :ruleset flow)\n", "mine.egg:3:", "want"),
        ("(rule ((want y f)) ((want y f)) :ruleset flow :name \"back\")\n", "mine.egg:1:53", "back"),
        ("(relation want (i64))\n", "mine.egg:1:", "want"),
        ("(rule ((wnt y f)) ((want y f)) :ruleset flow)\n", "mine.egg:1:9", "did you mean 'want'?"),
        ("(relation a (Tensr))\n", "mine.egg:1:", "did you mean 'Tensor'?"),
        ("(rule ((want y f)) ((want y f)) :ruleset flw :name \"r\")\n", "mine.egg:1:", "rule 'r': No such ruleset"),
        ("(rule ((= a (Arg x (End) (End)))) ((want x x)) :ruleset flow)\n", "mine.egg:1:13", "'Arg' has 2 columns"),
        ("(rule ((row-ref r)) ((row-ref r)) :ruleset load)\n", "mine.egg:1:44", "load the program"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_file_and_line(tmp_path: Path, text: str, where: str, what: str) -> None:
    with pytest.raises(RuleError) as caught:
        load(written(tmp_path, text))
    assert where in str(caught.value)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    "command",
    [
        '(input want "/etc/passwd")',
        '(output want "x.csv")',
        '(include "other.egg")',
        "(run 10)",
        "(run-schedule (saturate (run)))",
        "(extract x)",
        "(print-function want 10)",
        "(push)",
        '(rule ((want y f)) ((py-exec "import os")) :ruleset flow)',
        '(let $x (py-eval "1"))',
    ],
)
def test_a_rule_file_can_not_act(tmp_path: Path, command: str) -> None:
    with pytest.raises(RuleError, match=r"mine\.egg:2:\d+: a rule file may not use '"):
        load(written(tmp_path, "; a comment with (run 10) in it\n" + command))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(relation seen ((i64)))", "1:18: a rule file may not use 'i64' here, where a name or a literal is"),
        ("(function ff (i64) (i64) :no-merge)", "1:1: a function is declared as (function NAME (SORT...) SORT)"),
        ("(rule ((want y f)) ((let g (union y y))))", "may not use 'union' here, where a declared name is expected"),
        (
            "(relation mine (i64))\n(mine 3)",
            "2:2: a rule file may not use 'mine' here, where a declaration or a rule",
        ),
    ],
)
def test_what_is_known_but_out_of_place_is_not_called_unknown(tmp_path: Path, text: str, said: str) -> None:
    """``did you mean 'union'?`` was said of ``union``, and that ``i64`` was not declared."""
    with pytest.raises(RuleError) as caught:
        load(written(tmp_path, text))
    assert said in str(caught.value)
    assert "did you mean" not in str(caught.value)


def test_missing_and_binary_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"nowhere\.egg: can't read"):
        load(tmp_path / "nowhere.egg")
    binary = tmp_path / "binary.egg"
    binary.write_bytes(b"\xff\xfe\x00(")
    with pytest.raises(RuleError, match=r"binary\.egg: can't read"):
        load(binary)


def test_splitting_minds_comments_and_strings() -> None:
    text = '; (\n(a "(" ";") ; )\n(b)'
    assert [(form.text, form.line, form.column) for form in read_rule_text(text, "f").forms] == [
        ('(a "(" ";")', 2, 1),
        ("(b)", 3, 1),
    ]


def test_a_meaning_within_a_string_is_none(tmp_path: Path) -> None:
    text = '(rule ((want y f) (= y (Arg x w)) (is f "a\n;= (want y f) := (= y y)\n")) () :ruleset flow)\n'
    path = written(tmp_path, text.replace('(is f "', '(= "b" "'))
    base, own = read_rule_base([*rule_files(), path]), read_rule_base(rule_files())
    assert base.meanings == own.meanings


def test_a_file_may_use_what_another_before_it_declares(tmp_path: Path) -> None:
    first, second = tmp_path / "first.egg", tmp_path / "second.egg"
    first.write_text("(relation mine (i64))\n")
    second.write_text("(rule ((mine x)) ((mine (+ x 1))) :ruleset flow)\n")
    assert len(read_all([first, second])) == 2
    with pytest.raises(RuleError, match="may not use 'mine'"):
        read_all([second])


def test_egglog_gets_what_was_read_and_not_the_file() -> None:
    (form,) = read_rule_text('(rule ; one\n  ((a "x;y")) ; two )\n  ())', "f").forms
    assert form.text == '(rule\n  ((a "x;y"))\n  ())'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(relation whole (Tensor))", r"mine\.egg:1:11: 'whole' is declared already"),
        ("(relation own (Tensor))\n(relation own (i64))", r"mine\.egg:2:11: 'own' is declared already"),
        ("(rule ((want y)) ((live y)) :ruleset flow)", r"mine\.egg:1:8: 'want' has 2 columns, not 1"),
        ("(rule ((live (Op y))) () :ruleset flow)", r"mine\.egg:1:14: 'Op' has 2 columns, not 1"),
    ],
)
def test_a_name_is_declared_once_and_has_its_columns(tmp_path: Path, text: str, said: str) -> None:
    """The prover took the meaning of the package's relation for a user's of the same name."""
    (tmp_path / "mine.egg").write_text(text, encoding="utf-8")
    with pytest.raises(RuleError, match=said):
        read_all(rule_files([tmp_path / "mine.egg"]))


def test_shipped_files_are_split_into_what_is_read_of_them() -> None:
    """They are split at the lines that commands begin, without being read."""
    for file in rule_files():
        forms = read_rule_text(file.read_text(), str(file)).forms
        assert [(c.line, c.column, c.text) for c in read_all([file])] == [(f.line, f.column, f.text) for f in forms]


def test_a_shipped_file_given_again_is_refused() -> None:
    """egglog panicked."""
    with pytest.raises(RuleError, match=r"make\.egg:\d+:\d+: a rule is called .* already"):
        read_all(rule_files([rule_files()[0].parent / "make.egg"]))
