"""What no input may do: crash, hang, or give a wrong result. One row per malformed input.

A row says what is given and what comes: an exception of the package whose text names what is at fault, the input module
back, or a plan with a note. Rows that could hang run in a process of their own, with a time limit.
"""

from __future__ import annotations

import gc
import itertools
import math
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tvm
from compare import assert_same_results
from programs import constant, program
from tvm import relax
from tvm.relax import op as R
from tvm.script import ir as I
from tvm.script import tirx as T
from typer.testing import CliRunner

import eqsat_layout
from eqsat_layout.cli.main import app
from eqsat_layout.cost.database import Constants, Database, now
from eqsat_layout.cost.model import Roofline
from eqsat_layout.egraph.limits import Limits
from eqsat_layout.errors import (
    CandidateError,
    CostError,
    EqsatError,
    LayoutError,
    MalformedModuleError,
    RuleError,
    TargetError,
)
from eqsat_layout.maps import Digit, IndexMap

SECONDS = 60
"""Far more than any row takes."""

SOON = Limits(steps=150, seconds=3, megabytes=300)


@dataclass(frozen=True)
class Row:
    """``given`` makes the options of a plan, or does something of its own and gives nothing.

    ``comes``: an exception class, or None for a plan that is right; ``says`` is in its text or among the notes.
    """

    name: str
    given: Callable[[Path], dict[str, Any] | None]
    comes: type[BaseException] | None
    says: Sequence[str] = ()
    mod: Callable[[], Any] | None = None


def relu_chain() -> Any:
    return program(lambda b, x: R.nn.relu(b.emit(R.nn.relu(x))), (4, 6))


def two_convolutions() -> Any:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(R.nn.conv2d(x, constant(8, 8, 1, 1)))
        return R.nn.conv2d(builder.emit(R.nn.relu(y)), constant(8, 8, 1, 1, seed=1))

    return program(body, (1, 8, 4, 4), frozen={"relax.nn.conv2d": ["NHWC", "OHWI"]})


def rules(text: str | bytes, **options: Any) -> Callable[[Path], dict[str, Any]]:
    """A rule file of this text."""

    def given(folder: Path) -> dict[str, Any]:
        path = folder / "mine.egg"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return {"rules": [path], **options}

    return given


def options(**given: Any) -> Callable[[Path], dict[str, Any]]:
    return lambda _: given


# ---- rule files ------------------------------------------------------------------------------------------------------

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
    Row("an empty rule file", rules(""), None),
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
            rules(f"(relation n (i64))\n{text}", limits=SOON),
            None,
            [f"phase {phase!r} were stopped by the limit of 150 steps; still at work: rule 'up' of mine.egg:3"],
        )
        for phase, text in ENDLESS.items()
    ),
    *(Row(name, rules(text, limits=SOON), None, ["stopped by the limit of", "'up'"]) for name, text in HANGING.items()),
]


# ---- modules ---------------------------------------------------------------------------------------------------------


def changed_main(make: Callable[[Any], Any]) -> Callable[[], Any]:
    """``relu_chain`` with another ``main``."""

    def mod() -> Any:
        result = relu_chain()
        result.update_func(result.get_global_var("main"), make(result["main"]))
        return result

    return mod


def without_block(function: Any) -> Any:
    return relax.Function(function.params, relax.SeqExpr([], function.body.body), function.ret_ty, True, function.attrs)


def without_params(function: Any) -> Any:
    return relax.Function([], function.body, function.ret_ty, True, function.attrs)


def twice_bound(function: Any) -> Any:
    (block,) = function.body.blocks
    bindings = [block.bindings[0], *block.bindings]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], function.body.body)
    return relax.Function(function.params, body, function.ret_ty, True, function.attrs)


def unknown_function(function: Any) -> Any:
    (block,) = function.body.blocks
    first = block.bindings[0]
    call = relax.Call(tvm.ir.GlobalVar("gone"), [function.params[0]], ret_ty=first.var.ty)
    body = relax.SeqExpr(
        [relax.DataflowBlock([relax.VarBinding(first.var, call), *block.bindings[1:]])], function.body.body
    )
    return relax.Function(function.params, body, function.ret_ty, True, function.attrs)


def extern_and_recursive() -> Any:
    builder = relax.BlockBuilder()
    ty = relax.TensorType([4, 6], "float32")
    x, y = relax.Var("x", ty), relax.Var("y", ty)
    again = builder.add_func(relax.Function([y], relax.SeqExpr([], y), ty, False), "again")
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(R.nn.relu(x))
        z = builder.emit(relax.Call(relax.ExternFunc("no.such.function"), [y], ty_args=[ty]))
        builder.emit_func_output(z)
    mod = builder.get()
    own, result = relax.Var("x", ty), relax.Var("r", ty)
    call = relax.Call(again, [own], ret_ty=ty)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(result, call)])], result)
    mod.update_func(again, relax.Function([own], body, ty, False))
    return mod


def only_tir() -> Any:
    @I.ir_module
    class Mod:
        @T.prim_func(s_tir=True)
        def f(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.sblock("b"):
                    vi = T.axis.remap("S", [i])
                    y[vi] = x[vi]

    return Mod


def item_of_an_item() -> tvm.IRModule:
    """TVM wants a variable for the inner one."""
    number = relax.TensorType((), "int32")
    whole = relax.Var("t", relax.TupleType([relax.TupleType([number])]))
    item = relax.Var("r", number)
    binding = relax.VarBinding(item, relax.TupleGetItem(relax.TupleGetItem(whole, 0), 0))
    body = relax.SeqExpr([relax.BindingBlock([binding])], item)
    return tvm.IRModule({"main": relax.Function([whole], body, number).with_attr("global_symbol", "main")})


MODULE_ROWS = [
    Row("an item of an item", options(), MalformedModuleError, ["well formed", "TupleGetItem"], mod=item_of_an_item),
    Row("nothing", options(), MalformedModuleError, ["NoneType"], mod=lambda: None),
    Row("a path to nothing", options(), EqsatError, ["model.onnx", "No such file"], mod=lambda: "model.onnx"),
    Row("a function", options(), MalformedModuleError, ["Function"], mod=lambda: relu_chain()["main"]),
    Row("a dictionary", options(), MalformedModuleError, ["dict"], mod=lambda: {"main": relu_chain()["main"]}),
    Row("no functions", options(), None, ["same"], mod=lambda: tvm.IRModule({})),
    Row("no Relax function", options(), None, ["same"], mod=only_tir),
    Row(
        "unbound variable in a module",
        options(),
        MalformedModuleError,
        ["well formed"],
        mod=changed_main(without_block),
    ),
    Row("parameters missing", options(), MalformedModuleError, ["well formed"], mod=changed_main(without_params)),
    Row("a variable bound twice", options(), MalformedModuleError, ["well formed"], mod=changed_main(twice_bound)),
    Row("a function that is gone", options(), MalformedModuleError, ["gone"], mod=changed_main(unknown_function)),
    Row("extern functions and recursion", options(), None, ["same"], mod=extern_and_recursive),
]

# ---- options ---------------------------------------------------------------------------------------------------------


def costing(value: Any) -> Roofline:
    class Costs(Roofline):
        def run(self, *args: Any, **kwargs: Any) -> float:
            if isinstance(value, Exception):
                raise value
            return value  # type: ignore[no-any-return]

    return Costs()


def layouts(name: str, names: Sequence[Any], comes: Any, says: Sequence[str]) -> Row:
    return Row(name, options(desired_layouts={"relax.nn.conv2d": list(names)}), comes, says, mod=one_convolution)


def frozen_to(*names: str, op: str = "relax.nn.conv2d") -> Any:
    body = lambda b, x: R.nn.conv2d(x, constant(8, 8, 1, 1))  # noqa: E731
    return program(body, (1, 8, 4, 4), frozen={op: list(names)})


def one_convolution() -> Any:
    return program(lambda b, x: R.nn.conv2d(x, constant(8, 8, 1, 1)), (1, 8, 4, 4))


def flows(callback: Any) -> Callable[[Path], dict[str, Any]]:
    return options(flows={"relax.nn.relu": callback})


def raising(*_: Any) -> Any:
    raise ZeroDivisionError("oops")


def endless(operands: Any, results: Any, direction: str, index: int, index_map: Any) -> Iterator[Any]:
    while True:
        yield ((index_map,), (index_map,))


def squashing(operands: Any, results: Any, direction: str, index: int, index_map: Any) -> Any:
    squashed = IndexMap(index_map.shape, ((Digit(0, 1, 1),),))
    pair = (index_map, squashed) if direction == "forward" else (squashed, index_map)
    return [((pair[0],), (pair[1],))]


FLOW = "flow callback 'relax.nn.relu'"
OPTION_ROWS = [
    Row("an option that there is not", options(layouts={}), TypeError, ["layouts"]),
    Row("an unknown target", options(target="abacus"), TargetError, ["abacus"]),
    Row("a target of a wrong kind", options(target=7), TargetError, ["int"]),
    Row("a target dictionary without a kind", options(target={"mcpu": "x"}), TargetError, ["kind"]),
    layouts("a layout that is none", ["NHQQ", "OHWI"], LayoutError, ["NHQQ"]),
    layouts("a layout of another rank", ["NC", "OI"], None, ["relax.nn.conv2d", "stays as it is"]),
    layouts("too few layouts", [], LayoutError, ["conv2d"]),
    layouts("too many layouts", ["NHWC", "OHWI", "NHWC", "NHWC", "NHWC"], None, ["relax.nn.conv2d", "stays as it is"]),
    layouts("a layout that is a number", [4, 5], LayoutError, ["conv2d"]),
    layouts("a layout of block 0", ["NCHW0c", "OIHW"], LayoutError, ["NCHW0c"]),
    Row("layouts that are a text", options(desired_layouts="NHWC"), LayoutError, ["NHWC"]),
    Row("layouts of an op that is not there", options(desired_layouts={"relax.nn.conv9d": ["NHWC"]}), None, ["conv9d"]),
    Row("a frozen op of another rank", options(), LayoutError, ["conv2d", "NC"], mod=lambda: frozen_to("NC", "OI")),
    Row(
        "a frozen op of too many layouts",
        options(),
        LayoutError,
        ["conv2d", "5 layouts"],
        mod=lambda: frozen_to(*["NHWC"] * 5),
    ),
    Row(
        "a frozen op that is not bound",
        options(),
        LayoutError,
        ["lv99"],
        mod=lambda: frozen_to("NHWC", "OHWI", op="lv99"),
    ),
    Row("candidates that are a number", options(candidates=3), CandidateError, ["3"]),
    Row(
        "a candidate that is a number",
        options(candidates={"relax.nn.relu": [3]}),
        CandidateError,
        ["relax.nn.relu", "3"],
    ),
    Row(
        "a candidate of another shape",
        options(candidates={"relax.nn.relu": [["NCHW5c", "NCHW"]]}),
        CandidateError,
        ["relax.nn.relu"],
    ),
    Row(
        "a candidate module without main",
        options(candidates={"relax.nn.relu": [tvm.IRModule({})]}),
        CandidateError,
        ["main"],
    ),
    Row(
        "a candidate callback that raises",
        options(candidates={"relax.nn.relu": raising}),
        CandidateError,
        ["relax.nn.relu", "oops"],
    ),
    Row(
        "candidates without end",
        options(candidates={"relax.nn.relu": lambda call: itertools.repeat(["NHWC", "NHWC"])}),
        CandidateError,
        ["relax.nn.relu", "more than"],
    ),
    Row("candidates for nothing", options(candidates={"relax.nn.conv2d": [["NCHW"]]}), None, ["nothing to replace"]),
    Row(
        "candidates for an op that there is not",
        options(candidates={"relax.nothing": [["NCHW"]]}),
        CandidateError,
        ["relax.nothing", "no op"],
    ),
    Row(
        "candidates for a typo",
        options(candidates={"relax.nn.rely": [["NCHW"]]}),
        CandidateError,
        ["relax.nn.rely", "did you mean 'relax.nn.relu'?"],
    ),
    Row("flows that are a list", options(flows=[raising]), LayoutError, ["flows"]),
    Row("a flow that is no function", flows(3), LayoutError, ["relax.nn.relu"]),
    Row("a flow that raises", flows(raising), LayoutError, [FLOW, "oops"]),
    Row("flows without end", flows(endless), LayoutError, [FLOW, "more than"]),
    Row("a flow of a number", flows(lambda *_: 3), LayoutError, [FLOW]),
    Row("a flow of too few maps", flows(lambda *_: [((), ())]), LayoutError, [FLOW, "for each of 1"]),
    Row(
        "a flow of another map than asked for",
        flows(lambda o, r, *_: [((None,), (None,))]),
        LayoutError,
        [FLOW, "asked"],
    ),
    Row(
        "a flow of another shape",
        flows(lambda o, r, d, i, m: [((IndexMap.identity((2, 3)),), (m,))]),
        LayoutError,
        [FLOW, "(2, 3)"],
    ),
    Row("a flow that is no bijection", flows(squashing), LayoutError, [FLOW]),
    Row("a flow for nothing", options(flows={"relax.nothing": raising}), None, ["relax.nothing"]),
    Row("a cost that is NaN", options(cost_model=costing(math.nan)), CostError, ["run of relax.nn.", "nan"]),
    Row("a negative cost", options(cost_model=costing(-1.0)), CostError, ["run of relax.nn.", "-1"]),
    Row("an infinite cost", options(cost_model=costing(math.inf)), EqsatError, ["main", "finite"]),
    Row("a cost that is text", options(cost_model=costing("dear")), CostError, ["dear"]),
    Row(
        "a cost model that raises",
        options(cost_model=costing(ValueError("oops"))),
        CostError,
        ["run of relax.nn.", "oops"],
    ),
    Row("a cost model that is none", options(cost_model=3), CostError, ["cost_model"]),
    Row("limits that let nothing through", options(limits=Limits(nodes=1)), None, ["limit of 1 new nodes"]),
    Row("limits of one round", options(limits=Limits(rounds=1)), None, ["limit of 1 rounds"]),
    Row("limits that are a number", options(limits=3), EqsatError, ["limits", "3"]),
    Row("a time limit that is text", options(time_limit="soon"), EqsatError, ["time_limit", "soon"]),
    Row("a time limit of nothing", options(time_limit=0.0), None),
]


@pytest.mark.parametrize("row", [*RULE_ROWS, *MODULE_ROWS, *OPTION_ROWS], ids=lambda row: row.name)
def test_bad_input(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_LAYOUT_CACHE", str(tmp_path / "cache"))
    check(row, tmp_path)


def check(row: Row, folder: Path) -> None:
    """What comes is what the row says."""
    given = row.given(folder)
    mod = (row.mod or two_convolutions)()
    if given is None:
        return
    if row.comes is not None:
        with pytest.raises(row.comes) as caught:
            eqsat_layout.plan(mod, **given)
        assert not [text for text in row.says if text not in str(caught.value)], str(caught.value)
        return
    plan = eqsat_layout.plan(mod, **given)
    if row.says == ["same"]:
        assert plan.module is mod
        return
    missing = [text for text in row.says if not any(text in note for note in plan.notes)]
    assert not missing, plan.notes
    assert_same_results(mod, plan.module)


def test_rules_without_end_are_stopped(tmp_path: Path) -> None:
    environment = {**os.environ, "EQSAT_LAYOUT_CACHE": str(tmp_path / "cache")}
    paths = [str(Path(__file__).parent), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    command = [sys.executable, __file__, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.splitlines() == [row.name for row in HANGING_ROWS]


# ---- the database of measurements ------------------------------------------------------------------------------------


def record() -> Constants:
    return Constants("machine", {"bandwidth": 1e9}, "0", now())


def planned_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("EQSAT_LAYOUT_CACHE", str(folder))
    mod = two_convolutions()
    plan = eqsat_layout.plan(mod)
    assert_same_results(mod, plan.module)
    return plan


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x00\xff" * 50, "damaged"),
        (b"{}\n[]\nnull\n", "damaged"),
        (b'{"sum":"00000000","kind":"kernel"}\n', "damaged"),
        (b"SQLite format 3\x00", "damaged"),
        (b"(" * 100_000, "damaged"),
    ],
    ids=["noise", "other JSON", "a wrong sum", "another database", "deeply nested"],
)
def test_a_corrupt_database_is_said_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, says: str
) -> None:
    database = Database(tmp_path)
    database.add(record())
    with database.path.open("ab") as file:
        file.write(content)
    plan = planned_with(tmp_path, monkeypatch)
    assert [note for note in plan.notes if says in note and str(database.path) in note]
    database.add(record())
    assert database.read().constants["machine"].values == {"bandwidth": 1e9}


def test_a_torn_database_keeps_what_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(tmp_path)
    database.add(record())
    whole = database.path.read_bytes()
    for length in (1, 9, 20, len(whole) - 2):
        database.path.write_bytes(whole + whole[:length])
        assert "machine" in database.read().constants
        assert len(database.read().notes) == 1
    database.path.write_bytes(whole[: len(whole) // 2])
    assert planned_with(tmp_path, monkeypatch).notes


@pytest.mark.parametrize("kind", ["a file", "a folder in place of the file"])
def test_a_cache_that_is_no_folder_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    folder = tmp_path / "cache"
    if kind == "a file":
        folder.write_text("mine")
    else:
        Database(folder).path.mkdir(parents=True)
    assert planned_with(folder, monkeypatch).notes
    with pytest.raises(EqsatError, match="can't write measurements"):
        Database(folder).add(record())


def test_a_database_of_another_version_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "measurements.v99.jsonl"
    other.write_bytes(b"anything")
    assert [note for note in planned_with(tmp_path, monkeypatch).notes if "another version" in note]
    Database(tmp_path).add(record())
    assert other.read_bytes() == b"anything"


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file of this process may grow beyond ``size`` bytes."""
    import signal

    before, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_full_disk_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.add(record())
    before = database.path.read_bytes()
    with full_disk(len(before) + 10), pytest.raises(EqsatError, match="can't write measurements"):
        database.add(record(), record())
    assert database.path.read_bytes() == before
    database.add(record())


def test_a_full_disk_is_said_by_planning_and_by_writing(tmp_path: Path) -> None:
    mod = two_convolutions()
    source = tmp_path / "in.json"
    source.write_text(tvm.ir.save_json(mod))
    with full_disk(0), pytest.raises(EqsatError, match="can't write"):
        eqsat_layout.plan(mod)
    eqsat_layout.plan(mod)
    from eqsat_layout.readers.modules import write_module

    out = tmp_path / "out.json"
    out.write_text("before")
    with full_disk(100), pytest.raises(EqsatError, match=r"out\.json"):
        write_module(mod, out)
    assert out.read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.json", "out.json"]


# ---- interruptions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
@pytest.mark.parametrize("where", ["flows", "candidates", "cost_model", "desired_layouts"])
def test_an_interrupted_plan_leaves_everything_usable(
    where: str, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def interrupted(*_: Any, **__: Any) -> Any:
        raise error

    class Costs(Roofline):
        run = interrupted

    given: dict[str, Any] = {
        "flows": {"relax.nn.relu": interrupted},
        "candidates": {"relax.nn.relu": interrupted},
        "cost_model": Costs(),
        "desired_layouts": {"relax.nn.relu": interrupted},
    }
    mod = two_convolutions()
    before = tvm.ir.save_json(mod)
    expected = (error, EqsatError) if issubclass(error, Exception) else error
    with pytest.raises(expected):
        eqsat_layout.plan(mod, **{where: given[where]})
    assert not list(tmp_path.iterdir())
    assert tvm.ir.save_json(mod) == before
    assert gc.isenabled()
    assert_same_results(mod, eqsat_layout.optimize(mod))


# ---- the command line ------------------------------------------------------------------------------------------------

CLI_ROWS = [
    ("an empty file", "a.py", b"", "empty"),
    ("noise", "a.json", b"\x00\xff\xfe", "a.json"),
    ("JSON of something else", "a.json", b'{"a": 1}', "a.json"),
    ("JSON cut short", "a.json", b'{"root_index": 3, "nodes": [', "a.json"),
    ("deep JSON", "a.json", b"[" * 100_000, "a.json"),
    ("text that is no Python", "a.py", b"@I.ir_module\nclass M(:\n", "a.py:2"),
    ("text that runs", "a.py", b"import os\nos.system('true')\n@I.ir_module\nclass M:\n    pass\n", "a.py"),
    ("text that is no module", "a.py", b"x = 1\n", "a.py"),
    ("no UTF-8", "a.py", b"# \xff\n@I.ir_module\nclass M:\n    pass\n", "a.py"),
    ("ONNX of noise", "a.onnx", b"onnx, perhaps", "a.onnx"),
    ("an archive of nothing", "a.pt2", b"PK\x03\x04 and so on", "a.pt2"),
    ("an unknown kind", "a.foo", b"foo", "a.foo"),
]


@pytest.mark.parametrize(
    ("content", "name", "says"), [(c, n, s) for _, n, c, s in CLI_ROWS], ids=[r[0] for r in CLI_ROWS]
)
def test_the_command_line_says_what_is_wrong_with_a_file(tmp_path: Path, content: bytes, name: str, says: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    result = CliRunner().invoke(app, ["optimize", str(path)])
    assert result.exit_code == 2, result.output
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{dir}/nowhere.json"], "nowhere.json"),
        (["{dir}"], "{dir}"),
        (["{file}", "--target", "abacus"], "abacus"),
        (["{file}", "--target", '{"kind": '], "JSON"),
        (["{file}", "--rules", "{dir}/nowhere.egg"], "nowhere.egg"),
        (["{file}", "--rules", "{file}"], "in.json:1"),
        (["{file}", "--desired-layout", "NHWC"], "OP=LAYOUT"),
        (["{file}", "-o", "{dir}/no/such/out.json"], "no folder"),
        (["{file}", "-o", "{file}"], "never overwritten"),
        (["{file}", "-o", "{dir}/out.exe"], "out.exe"),
        (["{file}", "--time-limit", "soon"], "time-limit"),
        (["{file}", "--html", "{dir}/no/such/page.html"], "page.html"),
    ],
    ids=str,
)
def test_the_command_line_says_what_is_wrong_with_its_arguments(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    file = tmp_path / "in.json"
    file.write_text(tvm.ir.save_json(relu_chain()))
    filled = [a.replace("{dir}", str(tmp_path)).replace("{file}", str(file)) for a in arguments]
    result = CliRunner().invoke(app, ["optimize", *filled])
    assert result.exit_code == 2, result.output
    assert says.replace("{dir}", str(tmp_path)) in result.stderr
    assert "Traceback" not in result.stderr


if __name__ == "__main__":
    for hanging in HANGING_ROWS:
        check(hanging, Path(sys.argv[1]))
        print(hanging.name, flush=True)


def test_a_batch_of_nothing_can_be_planned() -> None:
    """Desired layouts raised ZeroDivisionError in the cost model."""
    mod = program(lambda b, x, w: R.nn.conv2d(x, w, padding=1), (0, 8, 6, 6), (8, 8, 3, 3))
    plan = eqsat_layout.plan(mod, desired_layouts={"relax.nn.conv2d": ["NHWC", "OHWI"]})
    assert plan.changed
