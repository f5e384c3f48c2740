"""What this room knows of an op is in the op's TIR: no file here names an operator of Relax."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from tvm import ir

import eqsat_layout.tir

ROOM = Path(inspect.getfile(eqsat_layout.tir)).parent
OPERATORS = frozenset(name.removeprefix("relax.") for name in ir.Op.list_op_names() if name.startswith("relax."))
NAMES = OPERATORS | {name.rpartition(".")[2] for name in OPERATORS}
OTHER_WORDS = frozenset(("min", "max", "pad"))
"""Functions of sizes, and a border in an error message."""
SCALAR_FUNCTIONS = ROOM / "scalar_functions.py"
"""It names functions of numbers, which are nodes and intrinsics of TIR, and some share their names with operators."""


def named_operators(source: str) -> Iterator[str]:
    """Operators that are named in strings (not docstrings), as an import, or as ``relax.op`` attributes."""
    tree = ast.parse(source)
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            name = node.value.removeprefix("relax.")
            if name in NAMES - OTHER_WORDS:
                yield name
        if isinstance(node, ast.Attribute) and node.attr == "op" and getattr(node.value, "id", "") == "relax":
            yield "relax.op"


@pytest.mark.parametrize("path", sorted(p for p in ROOM.glob("*.py") if p != SCALAR_FUNCTIONS), ids=lambda p: p.name)
def test_no_operator_is_named(path: Path) -> None:
    assert list(named_operators(path.read_text())) == []


def test_scalar_functions_are_used_for_scalars_only() -> None:
    """The one table is keyed by TIR names and never sees an op: it imports neither Relax nor TVM."""
    imports = [
        n for n in ast.walk(ast.parse(SCALAR_FUNCTIONS.read_text())) if isinstance(n, ast.Import | ast.ImportFrom)
    ]
    assert not any("tvm" in ast.unparse(n) for n in imports)


@pytest.mark.parametrize(
    "source", ["x = 'nn.conv2d'", "if op == 'relax.add': pass", "y = {'softmax': 1}", "relax.op.add"]
)
def test_the_test_finds_them(source: str) -> None:
    assert list(named_operators(source))
