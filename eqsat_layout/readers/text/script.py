"""Relax text to a module, without running what it says.

In: the text of a file. Out: what its class or function is. The text is parsed once; that tree is checked against the
grammar, and TVM's parser is given the same tree, never the text, with the words of TVMScript for all that it evaluates.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any, Final

import tvm
from tvm import relax
from tvm.script.ir_builder import IRBuilder
from tvm.script.parser._core import Parser, doc
from tvm.script.parser.core.diagnostics import Source
from tvm.script.parser.core.error import ParserError

from eqsat_layout.graph.skeleton import Skeleton
from eqsat_layout.readers.guards.calls import check_calls
from eqsat_layout.readers.guards.tensor_sizes import check_tuples
from eqsat_layout.readers.guards.types import check_types
from eqsat_layout.readers.text.json_guard import UnsafeGraphError, checked_json
from eqsat_layout.readers.text.script_guard import check_extent, check_statements
from eqsat_layout.readers.text.script_literals import UnsafeScriptError, refusal
from eqsat_layout.readers.text.script_size import check_script_size
from eqsat_layout.readers.text.script_words import no_builtins, vocabulary

_IMPORTED: Final = ("tvm", "typing", "__future__")
_METADATA: Final = "metadata"


def read_script(text: str) -> Any:
    """What the text defines; its last class or function where it has several.

    Raises :class:`UnsafeScriptError` where it is more than TVMScript, ``UnsafeCallError`` where the module calls what
    it does not hold, ``UnsafeTypeError`` where a type can't be, ``SyntaxError`` where it is not Python, and TVM's own
    errors where it is no module.
    """
    check_script_size(text)
    statements, metadata = _statements(text)
    words: dict[str, Any] = {}
    words.update(vocabulary(lambda extent: check_extent(extent, words)))
    if metadata is not None:
        words[_METADATA] = metadata
    elif any(isinstance(n, ast.Name) and n.id == _METADATA for s in statements for n in ast.walk(s)):
        raise UnsafeScriptError(
            1, 1, "was written without its constants: write it with script(show_meta=True), or as JSON with save_json"
        )
    bound = check_statements(statements, words)
    found = _parsed(text, ast.Module(statements, []), {**no_builtins(bound), **words})
    mod = found if isinstance(found, tvm.IRModule) else tvm.IRModule.from_expr(found)
    check_types(mod)
    check_calls(json.loads(tvm.ir.save_json(Skeleton.of(mod).module))["nodes"])  # constants are most of what it holds
    return found


def _statements(text: str) -> tuple[list[ast.stmt], Any]:
    """The classes and functions of a text, and its constants."""
    try:
        tree = ast.parse(text)
    except (RecursionError, MemoryError):
        raise UnsafeScriptError(1, 1, "expressions stand too deep in each other") from None
    except ValueError as error:
        raise UnsafeScriptError(1, 1, f"not Python: {error}") from None
    kept: list[ast.stmt] = []
    metadata: Any = None
    for statement in tree.body:
        match statement:
            case ast.Import() | ast.ImportFrom():
                _check_import(statement)
            case ast.Expr(value=ast.Constant()):  # the file's docstring
                pass
            case ast.ClassDef() | ast.FunctionDef():
                kept.append(statement)
            case ast.Assign(targets=[ast.Name()], value=ast.Call(func=ast.Name(id="TypeVar"))):
                kept.append(statement)
            case ast.Assign() if (constants := _constants(statement)) is not None:
                metadata = tvm.ir.load_json(_checked_constants(statement, constants))
            case _:
                raise refusal(statement, "only TVMScript classes and functions may stand at the top of the file")
    if not any(isinstance(statement, ast.ClassDef | ast.FunctionDef) for statement in kept):
        raise UnsafeScriptError(1, 1, "holds no TVMScript class or function")
    return kept, metadata


def _check_import(statement: ast.Import | ast.ImportFrom) -> None:
    """Imports are left out; those of something else are refused because the text would miss it."""
    match statement:
        case ast.Import():
            names = [alias.name for alias in statement.names]
        case ast.ImportFrom():
            names = [statement.module or "."]
    for name in names:
        if name.split(".")[0] not in _IMPORTED:
            raise refusal(statement, f"imports {name!r}: a Relax text is parsed, never run, and can't use it")


def _constants(statement: ast.Assign) -> str | None:
    """The JSON of ``metadata = tvm.ir.load_json("...")``, as the printer writes it."""
    match statement:
        case ast.Assign(
            targets=[ast.Name(id="metadata")],
            value=ast.Call(
                func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="tvm"), attr="ir"), attr="load_json"),
                args=[ast.Constant(value=str() as text)],
                keywords=[],
            ),
        ):
            return text
    return None


def _checked_constants(statement: ast.Assign, text: str) -> str:
    try:
        return checked_json(text)
    except UnsafeGraphError as error:
        raise refusal(statement, f"its constants: {error}") from None


class _CheckedSource(Source):  # type: ignore[misc]
    """A source whose tree is given; its text is for messages only."""

    def __init__(self, text: str, tree: ast.Module) -> None:
        super().__init__(text)
        self._tree = tree

    def as_ast(self) -> Any:
        return doc.to_doc(self._tree)


def _parsed(text: str, tree: ast.Module, names: Mapping[str, Any]) -> Any:
    """What TVM's parser makes of the tree, checked as ``tvm.script.from_source`` checks it."""
    parser = Parser(_CheckedSource(text, tree), {})
    with IRBuilder() as builder:
        try:
            parser.parse(extra_vars=dict(names))
        except ParserError as error:
            parser.report_error(error.node, error.args[0])
    found = builder.get()
    mod = found if isinstance(found, tvm.IRModule) else tvm.IRModule.from_expr(found)
    check_tuples(mod)
    relax.analysis.well_formed(mod)
    tvm.s_tir.analysis.verify_well_formed(mod)
    for function in mod.functions.values():
        if isinstance(function, tvm.tirx.PrimFunc) and not function.attrs.get("s_tir", False):
            tvm.tirx.analysis.verify_tirx_well_formed(function)
    return found
