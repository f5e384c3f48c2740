"""Files of other kinds, and ops that TVM can't write: each is a clear error, and none hangs or ends the process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tvm_ffi
from programs import program
from tvm import relax
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.cli.run import _loaded
from eqsat_layout.egraph.limits import Limits
from eqsat_layout.egraph.rules import read_all
from eqsat_layout.errors import EqsatError, InputError, RuleError, TargetError
from eqsat_layout.readers.modules import FileError, read_module, write_module
from eqsat_layout.soundness import assert_rules_sound
from eqsat_layout.soundness.rules import fuzzer
from eqsat_layout.targets.opencl.host.executable import OpenClProgram


@pytest.mark.parametrize("head", [b"", b"\xff" * 8 + b"{}", (100_000).to_bytes(8, "little") + b"[" * 100_000])
def test_what_is_no_program_says_so_and_names_the_file(tmp_path: Path, head: bytes) -> None:
    (tmp_path / "m.program").write_bytes(head)
    with pytest.raises(EqsatError, match=r"m.program: this is no eqsat_layout program for opencl: "):
        OpenClProgram.load(tmp_path / "m.program")


def test_a_program_is_read_of_a_file_only(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, why in ((tmp_path, "is no file"), (tmp_path / "pipe", "is no file"), (tmp_path / "none", "No such file")):
        with pytest.raises(EqsatError, match=f"{path}: {why}"):
            OpenClProgram.load(path)


@pytest.mark.parametrize(
    ("shape", "says"),
    [("(1000000000000,)", "larger than memory"), ("(" * 9000, "is no array"), ("(True,)", "is no array")],
)
def test_an_array_that_can_not_be_is_refused(tmp_path: Path, shape: str, says: str) -> None:
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
    with pytest.raises(InputError, match=f"x.npy: .*{says}"):
        _loaded(tmp_path / "x.npy")
    (tmp_path / "torn.npz").write_bytes(b"PK\x03\x04" + bytes(50))
    with pytest.raises(InputError, match="is no array"):
        _loaded(tmp_path / "torn.npz")
    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(InputError, match="a pipe or a device"):
        _loaded(tmp_path / "pipe.npy")


@pytest.mark.parametrize("action", ["(grow (/ 1 0))", "(grow (* 9223372036854775807 2))"])
def test_a_rule_that_egglog_stops_at_is_named_with_its_place(tmp_path: Path, action: str) -> None:
    rules = tmp_path / "mine.egg"
    rules.write_text(f"(relation grow (i64))\n(rule ((want y f)) ({action}) :ruleset flow)\n")
    mod = program(lambda b, x: b.emit(R.permute_dims(b.emit(R.nn.relu(x)), [1, 0])), (2, 3))
    with pytest.raises(RuleError, match=r"mine.egg:2:27: stops egglog: "):
        eqsat_layout.optimize(mod, rules=[rules])


def test_an_op_that_tvm_can_not_write_is_an_error_that_names_it() -> None:
    with pytest.raises(TargetError, match=r"TVM can't build .*Index out of range. size: 1, got index 99"):
        eqsat_layout.compile(program(lambda b, x: b.emit(R.cumsum(x, axis=99)), (2,)))


def test_an_op_at_which_tvm_fails_without_a_word_has_a_reason() -> None:
    """It said "relax.broadcast_to of made: " and no more, of an assertion without a text."""
    shape = relax.Var("shape", relax.ShapeType(ndim=1))
    builder = relax.BlockBuilder()
    with builder.function("main", [shape]):
        builder.emit_func_output(builder.emit(R.broadcast_to(relax.const(1.0), shape), "made"))
    with pytest.raises(TargetError, match=r"relax.broadcast_to of made: .*\w"):
        eqsat_layout.compile(builder.finalize())


_CHAIN = " ".join(f'(= t{i} (Op k{i} (Arg t{i + 1} (End)))) (is k{i} "relax.abs")' for i in range(40))
_APART = " ".join(f"(= t{i} (Op k{i} a{i}))" for i in range(12))


@pytest.mark.parametrize(
    ("body", "most", "said"),
    [
        (_CHAIN, Limits(megabytes=5), "5 megabytes of memory"),
        (_APART, Limits(seconds=1.0), "1 seconds"),
    ],
    ids=["chain", "apart"],
)
def test_a_rule_of_more_matches_than_can_be_found_does_not_hang_the_fuzzer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, most: Limits, said: str
) -> None:
    """Egglog looked for 2 to the 40th matches, or 12 to the 12th, and nothing stops it in the middle of a step."""
    monkeypatch.setattr(fuzzer, "MOST", most)
    rules = tmp_path / "mine.egg"
    rules.write_text(f'(rule ({body}) ((union t0 t1)) :ruleset logical :name "many")\n')
    with pytest.raises(RuleError, match=rf"mine.egg:1: 'many' matches too often in a small model: {said}"):
        assert_rules_sound(rules)


def test_an_attribute_that_is_nested_too_deep_is_text(tmp_path: Path) -> None:
    """Python has no memory for so many signs before a number."""
    rules = tmp_path / "mine.egg"
    deep = "-" * 100_000 + "1"
    rules.write_text(
        f'(rule ((= y (Op k (Arg x (End)))) (is k "relax.repeat") (attr k "repeats" "{deep}")) ((union y x)))'
    )
    with pytest.raises(AssertionError, match="is never true in the models"):
        assert_rules_sound(rules, seconds=1.0)


def test_a_relation_may_be_called_as_a_variable_of_another_rule(tmp_path: Path) -> None:
    """The fuzzer ended in an error of egglog's own, which does not take variables that are called as a relation is."""
    rules = tmp_path / "mine.egg"
    rules.write_text('(relation n (Tensor Tensor))\n(rule ((n x z)) ((n z x)) :ruleset logical :name "turned")\n')
    with pytest.raises(AssertionError, match="turned: no instance: nothing in the random models matches its body"):
        assert_rules_sound(rules, seconds=1.0)


@pytest.mark.parametrize(
    ("meaning", "says"),
    [
        ("(near i)", "what 'near' means is said by way of 'near' itself"),
        ("(and (= i i) (far i))", "what 'near' means is said by way of 'near' itself"),
        ("(and " * 3000 + "(false)" + ")" * 3000, "parentheses in more than 50 others"),
    ],
    ids=["itself", "each other", "deep"],
)
def test_a_meaning_without_end_is_refused(tmp_path: Path, meaning: str, says: str) -> None:
    """Python's recursion came to its end."""
    rules = tmp_path / "mine.egg"
    declared = f"(relation near (i64))\n;= (near i) := {meaning}\n(relation far (i64))\n;= (far i) := (near i)\n"
    rules.write_text(f"{declared}(rule ((near i)) ((far i)) :ruleset logical)\n")
    with pytest.raises(RuleError, match=f"mine.egg:[24]: {says}"):
        assert_rules_sound(rules, seconds=1.0)


def test_a_mark_of_the_encoding_is_no_part_of_a_text(tmp_path: Path) -> None:
    """Some editors begin files with one; a text that can't be Python at all has no line to name."""
    mod = program(lambda _, x: R.abs(x), (2, 3))
    for name in ("m.py", "m.json"):
        write_module(mod, tmp_path / name)
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + (tmp_path / name).read_bytes())
        assert tvm_ffi.structural_equal(read_module(tmp_path / name), mod)
    rules = tmp_path / "mine.egg"
    rules.write_bytes(b"\xef\xbb\xbf(relation mine (Tensor))\n")
    assert len(read_all([rules])) == 1
    (tmp_path / "m.py").write_text("@I.ir_module\0", encoding="utf-8")
    with pytest.raises(FileError, match=r"m\.py: not Python"):
        read_module(tmp_path / "m.py")
