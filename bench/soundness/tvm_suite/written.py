"""Modules and functions as a test file has them in its text, where running it takes what is not installed.

In: a test file. Out: the function that each class under ``@ir_module`` and each function under ``@R.function`` stands
in, its name, and the module, if it can be parsed with what the file imports and what stands above it.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import relax


@dataclass(frozen=True)
class Unparsed:
    """In place of a module."""

    why: str


_DECORATORS = {ast.ClassDef: "ir_module", ast.FunctionDef: "R.function"}
_SIMPLE = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)


def written_modules(path: Path) -> Iterator[tuple[str, str, Any]]:
    """See above: ``("test_conv", "Expected", module)``."""
    text = path.read_text()
    tree = ast.parse(text)
    yield from _below(tree, [], _names_after(tree.body, {}, str(path)), text, str(path))


def _below(node: Any, scope: list[str], names: dict[str, Any], text: str, file: str) -> Iterator[tuple[str, str, Any]]:
    for child in node.body:
        if _is_script(child):
            yield ".".join(scope), child.name, _parsed(child, names, text)
        elif isinstance(child, ast.ClassDef | ast.FunctionDef):
            inner = _names_after(child.body, names, file)
            yield from _below(child, [*scope, child.name], inner, text, file)
        elif isinstance(child, ast.With | ast.If | ast.For):
            yield from _below(child, scope, names, text, file)


def _is_script(node: Any) -> bool:
    word = _DECORATORS.get(type(node))
    return word is not None and any(word in ast.unparse(decorator) for decorator in node.decorator_list)


def _names_after(body: list[Any], names: dict[str, Any], file: str) -> dict[str, Any]:
    """What imports and assignments define, each as far as it works here."""
    names = dict(names)
    for node in _one_by_one(body):
        if isinstance(node, _SIMPLE):
            try:
                exec(compile(ast.Module([node], []), file, "exec"), names)
            except Exception:  # on purpose: a framework that is not there, or a name from a test that did not run
                continue
    return names


def _one_by_one(body: list[Any]) -> Iterator[Any]:
    """With an import for each name: one that another version of TVM has must not lose the others."""
    for node in body:
        if isinstance(node, ast.ImportFrom):
            yield from (ast.ImportFrom(node.module, [name], node.level, lineno=0, col_offset=0) for name in node.names)
        else:
            yield node


def _parsed(node: Any, names: dict[str, Any], text: str) -> Any:
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    source = textwrap.dedent("\n".join(text.splitlines()[first - 1 : node.end_lineno]))
    try:
        parsed = tvm.script.from_source(source, dict(names))
    except Exception as error:  # on purpose: as above
        return Unparsed(str(error).partition("\n")[0].removeprefix("error: ") or type(error).__name__)
    return tvm.IRModule.from_expr(parsed) if isinstance(parsed, relax.Function) else parsed
