"""Files that take more memory than they have bytes, or that hold nothing but holes: refused before they are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from programs import program
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.cli.run import _loaded
from eqsat_layout.egraph.rules import read_all
from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.modules import read_module, write_module
from eqsat_layout.readers.text.script_literals import UnsafeScriptError
from eqsat_layout.readers.text.script_size import MOST_CODE, check_script_size
from eqsat_layout.session.library import opened_program
from eqsat_layout.targets.opencl.host.executable import OpenClProgram

TERABYTE = 1 << 40


def _written(path: Path) -> Path:
    write_module(program(lambda _, x: R.abs(x), (2, 3)), path)
    return path


READERS: dict[str, Callable[[Path], Any]] = {
    "m.py": read_module,
    "m.json": read_module,
    "m.onnx": read_module,
    "m.pt2": read_module,
    "m": read_module,
    "m.egg": lambda path: read_all([path]),
    "x.npy": _loaded,
    "m.program": opened_program,
    "device.program": OpenClProgram.load,
    "rules.egg": lambda path: eqsat_layout.Session(_written(path.with_name("good.json")), rules=[path]),
    "session.json": eqsat_layout.Session,
    "session.onnx": eqsat_layout.Session,
}


@pytest.mark.parametrize("name", list(READERS))
def test_a_file_of_holes_is_refused_before_it_is_read(tmp_path: Path, name: str) -> None:
    """Memory came to its end, or the system ended the process."""
    path = tmp_path / name
    with path.open("wb") as file:
        file.write(b"{")
        file.truncate(TERABYTE)
    with pytest.raises(EqsatError, match=rf"{name}: .*1024\.0 GiB, and (such a file|this machine) has"):
        READERS[name](path)


@pytest.mark.parametrize("text", ["{}", 'f("\\"", {})', "# '\n{}", "'''' ''' + {}", "'\n{}"])
def test_code_takes_a_thousand_times_its_memory_and_is_bounded(text: str) -> None:
    """A list of eight million numbers in a text took more than 6 GB. What quotes and signs of comments are not."""
    check_script_size(text.format("'" + "1," * MOST_CODE + "'"))
    with pytest.raises(UnsafeScriptError, match="holds more than 8 million characters of code"):
        check_script_size(text.format("1," * MOST_CODE))


def test_constants_in_a_text_are_not_counted_as_code() -> None:
    check_script_size(f'metadata = tvm.ir.load_json("""{"," * MOST_CODE}""")  # {"," * MOST_CODE}')
