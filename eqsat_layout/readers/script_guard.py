"""Makes sure that parsing a Relax text can't run code. Room: the command line.

TVM's parser evaluates every expression of the text with Python's ``eval``, so a text from elsewhere could do anything.
In: the text. Out: the same text with its imports blanked, or an error where it uses more than TVMScript's own words.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

from tvm.script.parser import ir, relax, tirx

_ROOTS: Final = {"I": ir, "R": relax, "T": tirx}
_IMPORTED: Final = ("tvm", "typing", "__future__")
_HARMLESS: Final = {"bool", "float", "int", "len", "max", "min", "range", "str", "tuple", "Axis", "TypeVar"}
_DANGEROUS: Final = {"compile", "delattr", "eval", "exec", "getattr", "globals", "locals", "open", "setattr", "vars"}
_SUBMODULES: Final = ("tvm.relax.op.", "tvm.relax.script.parser.dist")
_OWN_CODE: Final = ("tvm.relax", "tvm.tirx", "tvm.script", "tvm.ir")
_DEVICES: Final = {"cpu", "cuda", "device", "ext_dev", "hexagon", "metal", "opencl", "rocm", "vpi", "vulkan", "webgpu"}
_REFUSED: Final = {"call_kernel", "call_py_func", "emit_te", "jit", "meta_class", "pyfunc", "register_script_namespace"}


class UnsafeScriptError(ValueError):
    """The text is more than TVMScript; ``line`` says where."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def checked_script(text: str) -> str:
    """``text`` without its imports, its line numbers kept.

    Raises :class:`UnsafeScriptError` where it is more than TVMScript, ``SyntaxError`` where it is not Python.
    """
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    checked: list[ast.stmt] = []
    for statement in tree.body:
        match statement:
            case ast.Import() | ast.ImportFrom():
                _check_import(statement)
                _blank(lines, statement)
            case ast.Expr(value=ast.Constant()):  # the file's docstring
                _blank(lines, statement)
            case ast.Assign() if _is_metadata(statement):
                pass
            case ast.ClassDef() | ast.FunctionDef() | ast.Assign():
                checked.append(statement)
            case _:
                raise _refuse(statement, "only TVMScript classes and functions may stand at the top of the file")
    if all(isinstance(statement, ast.Assign) for statement in checked):
        raise UnsafeScriptError(1, "holds no TVMScript class or function")
    bound = {name for statement in checked for name in _bound_names(statement)}
    for statement in checked:
        _check(statement, bound)
    return "".join(lines)


def _blank(lines: list[str], statement: ast.stmt) -> None:
    for number in range(statement.lineno - 1, statement.end_lineno or statement.lineno):
        lines[number] = "\n"


def _check_import(statement: ast.Import | ast.ImportFrom) -> None:
    match statement:
        case ast.Import():
            names = [alias.name for alias in statement.names]
        case ast.ImportFrom():
            names = [statement.module or "."]
    for name in names:
        if name.split(".")[0] not in _IMPORTED:
            raise _refuse(statement, f"imports {name!r}: a Relax text is parsed, never run, and can't use it")


def _is_metadata(statement: ast.stmt) -> bool:
    """``metadata = tvm.ir.load_json("...")``, as the printer writes it: data only."""
    match statement:
        case ast.Assign(
            targets=[ast.Name(id="metadata")],
            value=ast.Call(
                func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="tvm"), attr="ir"), attr="load_json"),
                args=[ast.Constant(value=str())],
                keywords=[],
            ),
        ):
            return True
    return False


def _bound_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case _ if type(node).__name__ == "TypeVar":  # def main[n](...), Python 3.12
                yield str(getattr(node, "name", ""))


def _check(tree: ast.AST, bound: set[str]) -> None:
    """Raises unless every name, attribute and quoted expression in ``tree`` is one that TVMScript itself has."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute() if id(node) not in inner:
                _check_attribute(node)
            case ast.Name(id=name):
                _check_name(node, name, bound)
            case ast.Call(func=ast.Name(id=name)) if hasattr(builtins, name) and name not in _HARMLESS:
                raise _refuse(node, f"calls {name}()")
            case ast.Constant(value=str() as text) if "(" in text:
                _check_quoted(node, text, bound)
            case ast.FunctionDef() if not node.decorator_list:
                raise _refuse(node, f"function {node.name!r} is not TVMScript: it has no decorator")
            case ast.ClassDef() if not node.decorator_list:
                raise _refuse(node, f"class {node.name!r} is not TVMScript: it has no decorator")
            case ast.Import() | ast.ImportFrom() | ast.JoinedStr() | ast.Await() | ast.Yield() | ast.NamedExpr():
                raise _refuse(node, f"{type(node).__name__} is not TVMScript")


def _check_name(node: ast.AST, name: str, bound: set[str]) -> None:
    if name in _DANGEROUS or name.startswith("__"):
        raise _refuse(node, f"uses {name!r}")
    if name not in bound and name not in _ROOTS and name not in _HARMLESS and name != "metadata":
        raise _refuse(node, f"uses {name!r}, which is neither TVMScript nor defined in the file")


def _check_attribute(node: ast.Attribute) -> None:
    """A dotted name: no private part, and under I, R and T only what TVMScript means to offer."""
    names: list[str] = []
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
        if root.attr.startswith("_"):
            raise _refuse(root, f"uses the private attribute {root.attr!r}")
        names.insert(0, root.attr)
        root = root.value
    if not isinstance(root, ast.Name) or root.id not in _ROOTS:
        return
    value: Any = _ROOTS[root.id]
    for name in names:
        inside = isinstance(value, ModuleType)
        value = getattr(value, name, None)  # an unknown name is the parser's error to report, with its place
        if name in _REFUSED or (inside and not _is_own(name, value)):
            raise _refuse(node, f"uses {root.id}.{'.'.join(names)}, which is not allowed in a file")


def _is_own(name: str, value: Any) -> bool:
    if isinstance(value, ModuleType):
        return value.__name__.startswith(_SUBMODULES) or f"{value.__name__}." in _SUBMODULES
    home = str(getattr(value, "__module__", None) or "tvm.ir")
    return name in _DEVICES or home.startswith(_OWN_CODE) or not callable(value)


def _check_quoted(node: ast.Constant, text: str, bound: set[str]) -> None:
    """TVM evaluates some strings, such as the extent ``"n * T.int64(2)"``: those that could call are checked too."""
    try:
        expression = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return
    if any(isinstance(child, ast.Call) for child in ast.walk(expression)):
        try:
            _check(expression, bound)
        except UnsafeScriptError as error:
            raise _refuse(node, f"{error} in the string {text[:40]!r}") from None


def _refuse(node: ast.AST, message: str) -> UnsafeScriptError:
    return UnsafeScriptError(getattr(node, "lineno", 1), message)
