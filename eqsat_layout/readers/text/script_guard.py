"""The grammar of a Relax text: what may stand in it, so that parsing it runs no code.

TVM's parser evaluates every expression of a text with Python's ``eval``. In: the syntax tree of a text, the words of
TVMScript. Out: nothing, or :class:`UnsafeScriptError` for the first node, name, attribute or call that is on no list.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from eqsat_layout.readers.guards.subscripts import why_no_subscripts
from eqsat_layout.readers.guards.tensor_sizes import MOST_PARTS
from eqsat_layout.readers.text.script_literals import UnsafeScriptError, check_depth, check_literals, dotted, refusal
from eqsat_layout.readers.text.script_words import CASTS, Words

_NODES: Final = (
    ast.arguments, ast.arg, ast.keyword, ast.withitem, ast.expr_context,
    ast.ClassDef, ast.FunctionDef, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.If, ast.For,
    ast.While, ast.With, ast.Assert, ast.Break, ast.Continue, ast.Pass,
    ast.Call, ast.Attribute, ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp,
    ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Dict, ast.Lambda,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr,
    ast.BitXor, ast.MatMult, ast.And, ast.Or, ast.Not, ast.Invert, ast.UAdd, ast.USub,
    ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
    *filter(None, [getattr(ast, "TypeVar", None)]),
)  # fmt: skip
"""Left out are, among others, powers, comprehensions, imports, f-strings, stars and what names no value."""

_FIELDS: Final = frozenset(("data", "dtype", "elem_offset", "ndim", "shape", "strides"))
_METHODS: Final = frozenset(("access_ptr", "vload", "vstore"))
"""Of buffers and variables: all that is printed of them."""

_DECORATORS: Final = {"class": ("I.ir_module",), "function": ("R.function", "T.prim_func")}
_SHAPED: Final = ("R.Tensor", "R.DTensor", "R.dist.DTensor", "R.Shape", "T.Buffer")
"""Words that take a shape in which TVM evaluates strings."""


def check_statements(statements: Sequence[ast.stmt], words: Mapping[str, Any]) -> frozenset[str]:
    """Raises unless all of it is TVMScript; the names that the text defines."""
    for statement in statements:
        check_depth(statement)
    grammar = _Grammar(statements, words, frozenset())
    for statement in statements:
        grammar.check(statement)
    return grammar.bound


def check_extent(text: str, words: Mapping[str, Any]) -> None:
    """Raises unless a quoted extent such as ``"n * 4"`` is an expression of TVMScript. Its names may be new."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UnsafeScriptError(1, 1, "what is no extent") from None
    check_depth(tree)
    names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    _Grammar([], words, quoted=names.difference(words, dir(builtins))).check(tree)


class _Grammar:
    """``bound``: names that the text defines; ``modules``: those of its classes; ``functions``: what stands in them."""

    def __init__(self, statements: Sequence[ast.stmt], words: Mapping[str, Any], quoted: frozenset[str]) -> None:
        self.words = words
        nodes = [node for statement in statements for node in ast.walk(statement)]
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        self.functions = {name for node in classes for part in node.body for name in _members(part)}
        names = {node.name for node in classes}
        aliases = [node for node in nodes if isinstance(node, ast.Assign) and _is_alias(node, names)]
        self.modules = names | {name for node in aliases for name in _bound_names(node.targets[0])}
        self.aliasing = {id(node.targets[0]) for node in aliases}
        self.bound = quoted.union(name for node in nodes for name in _bound_names(node))

    def check(self, tree: ast.AST) -> None:
        """Every node of ``tree``, whatever it stands in; :class:`UnsafeScriptError` for the first that may not."""
        nodes = list(ast.walk(tree))
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        loops = {id(node.iter.func) for node in nodes if isinstance(node, ast.For) and isinstance(node.iter, ast.Call)}
        given = {id(value) for node in calls for value in (*node.args, *(k.value for k in node.keywords))}
        called = {id(node.func) for node in calls}
        inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        for node in nodes:
            if not isinstance(node, _NODES):
                raise refusal(node, f"{type(node).__name__} is not TVMScript")
            for name in _bound_names(node):
                self._binding(node, name)
            match node:
                case ast.Name(ctx=ast.Load()):
                    self._name(node, is_loop=id(node) in loops)
                case ast.Attribute() if id(node) not in inner:
                    self._attribute(node, is_called=id(node) in called)
                case ast.Call():
                    self._call(node)
                case ast.Lambda() if id(node) not in given:
                    raise refusal(node, "a lambda may only be given to a function of TVMScript")
                case ast.FunctionDef() | ast.ClassDef():
                    _check_definition(node)
                case _:
                    check_literals(node)

    def _binding(self, node: ast.AST, name: str) -> None:
        """No word of TVMScript gets another meaning, and what stands for a module stands for nothing else."""
        is_module = isinstance(node, ast.ClassDef) or id(node) in self.aliasing
        if name.startswith("__") or name in self.words or (name in self.modules and not is_module):
            raise refusal(node, f"gives {name!r} a meaning of its own")

    def _name(self, node: ast.Name, is_loop: bool) -> None:
        if node.id == "range" and not is_loop:
            raise refusal(node, "uses 'range' outside of the head of a loop")
        if node.id not in self.words and node.id not in self.bound:
            raise refusal(node, f"uses {node.id!r}, which is neither TVMScript nor defined in the file")

    def _attribute(self, node: ast.Attribute, is_called: bool) -> None:
        """A word of TVMScript, a function of the file, or a field of a value."""
        if not isinstance(node.ctx, ast.Load):
            raise refusal(node, f"assigns to the attribute {node.attr!r}")
        root, names = dotted(node)
        if isinstance(root, ast.Name) and isinstance(self.words.get(root.id), Words):
            value = self.words[root.id]
            for name in names:
                value = vars(value).get(name) if isinstance(value, Words) else None
            if value is None or isinstance(value, Words):
                raise refusal(node, f"uses {'.'.join([root.id, *names])}, which is no word of TVMScript")
            return
        if isinstance(root, ast.Name) and root.id in self.modules:
            if names[0] not in self.functions or names[0].startswith("__"):
                raise refusal(node, f"uses {root.id}.{names[0]}, which is no function of the file")
            names = names[1:]
        if names:
            fields, last = names[:-1], names[-1]
            unknown = [name for name in fields if name not in _FIELDS]
            unknown += [] if last in (_METHODS if is_called else _FIELDS) else [last]
            if unknown:
                raise refusal(node, f"uses the attribute {unknown[0]!r}, which is not TVMScript")

    def _call(self, node: ast.Call) -> None:
        root, names = dotted(node.func)
        match node.func:
            case ast.Name(id="TypeVar"):
                if node.keywords or not all(isinstance(value, ast.Constant) for value in node.args):
                    raise refusal(node, "a TypeVar has a name and nothing else")
            case ast.Name(id=name) if name not in CASTS and (name not in self.bound or hasattr(builtins, name)):
                raise refusal(node, f"calls {name}()")
            case ast.Name() | ast.Attribute():
                pass  # checked where it stands
            case _:
                raise refusal(node, f"calls what a {type(node.func).__name__} gives")
        path = ".".join([root.id, *names]) if isinstance(root, ast.Name) else ""
        if path in _SHAPED:
            shapes = [*node.args[:1], *(k.value for k in node.keywords if k.arg in ("shape", "values"))]
            for shape in shapes:
                if path == "T.Buffer" or not isinstance(shape, ast.Constant):  # R.Tensor("float32") has no shape
                    self._quoted_extents(shape)
        if path == "R.split":
            self._parts(node)
        if path == "R.einsum":
            _check_subscripts(node)

    def _parts(self, node: ast.Call) -> None:
        """TVM makes a type for each part that a split is told to make, before anything can count them."""
        given = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "indices_or_sections")]
        for told in given:
            match told:
                case ast.List() | ast.Tuple():
                    pass
                case ast.Constant(value=int(parts)):
                    if parts > MOST_PARTS:
                        raise refusal(node, f"a tuple has {parts} parts, of which there may be {MOST_PARTS}")
                case _:
                    raise refusal(node, "how many parts a tensor is split into is a number or a list of places")

    def _quoted_extents(self, shape: ast.expr) -> None:
        """TVM evaluates the strings in it."""
        for part in ast.walk(shape):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                try:
                    check_extent(part.value, self.words)
                except UnsafeScriptError as error:
                    raise refusal(part, f"{error} in the string {part.value[:40]!r}") from None


def _check_subscripts(node: ast.Call) -> None:
    for told in [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "subscripts")]:
        if not isinstance(told, ast.Constant) or not isinstance(told.value, str):
            raise refusal(node, "the subscripts of an einsum are a text")
        if why := why_no_subscripts(told.value):
            raise refusal(node, why)


def _check_definition(node: ast.FunctionDef | ast.ClassDef) -> None:
    kind = "class" if isinstance(node, ast.ClassDef) else "function"
    if not node.decorator_list:
        raise refusal(node, f"{kind} {node.name!r} is not TVMScript: it has no decorator")
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        root, names = dotted(decorator if call is None else call.func)
        path = ".".join([root.id, *names]) if isinstance(root, ast.Name) else ""
        is_plain = call is None or (not call.args and all(isinstance(k.value, ast.Constant) for k in call.keywords))
        if path not in _DECORATORS[kind] or not is_plain:
            raise refusal(decorator, f"{kind} {node.name!r} has a decorator that is not TVMScript")
    if isinstance(node, ast.ClassDef) and (node.bases or node.keywords):
        raise refusal(node, f"class {node.name!r} has a base class")


def _is_alias(node: ast.Assign, modules: set[str]) -> bool:
    """``cls = Module``."""
    match node:
        case ast.Assign(targets=[ast.Name()], value=ast.Name(id=name)):
            return name in modules
    return False


def _members(node: ast.stmt) -> Iterator[str]:
    """What a statement of a class adds to its module: a function, or one that stands elsewhere."""
    targets = node.targets if isinstance(node, ast.Assign) else [node]
    return (name for target in targets for name in _bound_names(target))


def _bound_names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.arg(arg=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case _ if type(node).__name__ == "TypeVar":  # def main[n](...), Python 3.12
            yield str(getattr(node, "name", ""))
