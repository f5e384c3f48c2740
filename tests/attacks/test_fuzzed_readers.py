"""Honest files, changed at random with the words of attacks, reach nothing that is not on a list.

What the readers take is looked at by others: Python's own syntax tree with a list of names, egglog's own parser.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import tvm
from egglog.bindings import EGraph
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eqsat_layout.egraph.rules import read_all
from eqsat_layout.errors import EqsatError, RuleError
from eqsat_layout.readers.text.json_guard import UnsafeGraphError, checked_json
from eqsat_layout.readers.text.script import read_script
from eqsat_layout.readers.text.script_literals import UnsafeScriptError

_SPEC = importlib.util.spec_from_file_location("attacks_watch_here", Path(__file__).with_name("watch.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
watch = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(watch)
sys.addaudithook(watch.hook)  # sleeps unless it is told to watch

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

TEXT = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def add(a: T.Buffer(("n", T.int64(4)), "float32"), b: T.Buffer((T.int64(2), T.int64(4)), "float32")):
        n = T.int32()
        for i, j in T.grid(T.int64(2), T.int64(4)):
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = T.if_then_else(vi < T.int64(1), a[vi, vj] * T.float32(2), T.float32(0))
    @R.function
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((4, 2), "float32"):
        cls = Module
        with R.dataflow():
            y = R.call_tir(cls.add, (x,), out_ty=R.Tensor((2, 4), "float32"))
            z = R.layout_transform(y, index_map=lambda i, j: (j, i))
            R.output(z)
        return z
"""
WORDS = [
    "open", "eval", "__import__", "getattr", "breakpoint", "exit", "print", "globals", "x.__class__",
    "R.add.__globals__",
    "gi_frame", "(i for i in x)", "[i for i in x]", "lambda f: f", "tvm", "os", "import os", "R.emit_te", "T.inline",
    "I.pyfunc",
    ".tofile", ".value", ".numpy()", "()", "(x)", "('CANARY', 'w')", "**", "<<", "'open()'", '"n*4"', "R", "T", "cls",
    "Module",
    "@open", "yield", "await x", "def f(): pass", "metadata['k'][0]", "__builtins__", ":=", "*x", "{}", "f'{x}'",
    "x[0]", "\f", "\r",
]  # fmt: skip
NAMES_OF_PYTHON = frozenset(watch._NAMES_OF_OTHERS) | {"print", "os", "tvm", "value", "numpy", "inline", "pyfunc"}


@st.composite
def changed(draw: st.DrawFn, text: str, words: list[str], pattern: str) -> str:
    """``text`` with a few of its tokens replaced, doubled, dropped or wrapped."""
    tokens = re.findall(pattern, text)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(tokens) - 1))
        word = draw(st.sampled_from(words) | st.sampled_from(tokens))
        kept = draw(st.sampled_from(["", tokens[at]]))
        tokens[at] = draw(st.sampled_from([kept + word, word + kept, kept]))
    return "".join(tokens)


@FUZZ
@given(changed(TEXT, WORDS, r"\w+|\s+|[^\w\s]"))
def test_a_changed_text_reaches_no_name_of_python(text: str) -> None:
    watch.watched.clear()
    watch.is_watching = True
    try:
        read_script(text)
    except (UnsafeScriptError, SyntaxError, EqsatError):
        return
    except (tvm.error.DiagnosticError, tvm.error.InternalError, ValueError, TypeError, NameError, KeyError):
        pass  # it was evaluated: TVM does not take it
    finally:
        watch.is_watching = False
    assert watch.watched == []
    for node in ast.walk(ast.parse(text)):
        reached = {getattr(node, "attr", ""), node.id if _is_read(node) else ""}
        assert not reached & NAMES_OF_PYTHON - _bound(text), ast.unparse(node)
        assert not any(name.startswith("__") for name in reached), ast.unparse(node)


def _is_read(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def _bound(text: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(text)))
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    named = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return stored | named | {node.arg for node in nodes if isinstance(node, ast.arg)}


def test_the_text_itself_is_read() -> None:
    assert {v.name_hint for v in read_script(TEXT).get_global_vars()} == {"add", "main"}


RULES = """\
; (py-eval "1") in a comment
(relation mine (Tensor i64))
(rule ((want y f) (= y (Arg x w))) ((mine y 1) (mine x (+ 1 2))) :ruleset flow :name "one (py-eval)")
(rewrite (Arg x (End)) (Arg x (End)) :when ((mine x 1)) :ruleset logical)
(check (= 1 1))
(fail (check (= 1 2)))
"""
RULE_WORDS = [
    "(", ")", ";", "\n", '"', "\\", '(py-eval "1")', '(py-exec "import os")', "py-eval", '(output "CANARY" "x")',
    "(push)", "fail", "(fail", "input", "include", "extract", "run", "\u00a0", "\f", "\r", "'", "#|", "|", ":merge",
    ":when", "(;\n",
    'a"b', "@x", "let",
]  # fmt: skip
FOREIGN = re.compile(
    r"\(\s*(py-[\w-]*|input|output|include|extract|push|pop|run|run-schedule|print-\w+|unstable-fn)[\s()]"
)
STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


@FUZZ
@given(changed(RULES, RULE_WORDS, r"[\w-]+|\s+|[^\w\s]"))
def test_a_changed_rule_file_says_nothing_else_to_egglog(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.egg"
    path.write_text(text, encoding="utf-8", newline="")
    try:
        commands = read_all([path])
    except RuleError:
        return
    for command in commands:
        try:
            parsed: Any = EGraph().parse_program(command.text)
        except BaseException:  # egglog panics with a BaseException for some mistakes
            continue
        assert len(parsed) == 1, command.text
        assert not FOREIGN.search(STRINGS.sub('""', str(parsed[0]) + " ")), command.text


def test_the_rules_themselves_are_read(tmp_path: Path) -> None:
    (tmp_path / "mine.egg").write_text(RULES)
    assert len(read_all([tmp_path / "mine.egg"])) == 5


GRAPH_WORDS = ["-1", "0", "9", "null", '"ffi.Module"', '"ir.EnvFunc"', "[", "]", "{", "1e99", "true"]
GRAPH = tvm.ir.save_json(tvm.IRModule.from_expr(read_script(TEXT)["main"]))


@FUZZ
@given(
    changed(
        GRAPH,
        ["-1", "0", "9", "null", '"ffi.Module"', '"ir.EnvFunc"', "[", "]", "{", "1e99", "true"],
        r'"[^"]*"|-?\d+|.',
    )
)
def test_a_changed_graph_is_refused_or_loads(text: str) -> None:
    """Or TVM refuses it: what it never does is take the process with it."""
    try:
        checked = checked_json(text)
    except UnsafeGraphError:
        return
    assert "ffi.Module" not in {node["type"] for node in json.loads(checked)["nodes"]}
    with contextlib.suppress(tvm.error.InternalError, ValueError, TypeError, RuntimeError, KeyError, AttributeError):
        tvm.ir.load_json(checked)
