"""Files and arguments that the command line can't take."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm
from bad_input.rows import relu_chain
from typer.testing import CliRunner

from eqsat_layout.cli.main import app

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
