"""Reads attacks in a process of its own and writes down what Python does meanwhile.

In: a kind of attack, and a folder for files. Out, on standard output: one line of JSON for each, with the message of
the refusal and every event of Python's audit that no reader has a reason for.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

DATA = Path(__file__).parent / "data"

_FORBIDDEN = re.compile(
    r"os\.(system|exec|posix_spawn|spawn|fork|forkpty|remove|rename|link|symlink|kill|putenv|chmod|chown)"
    r"|subprocess\.Popen|socket\.|ctypes\.|shutil\.|pickle\.find_class|marshal\.loads|pty\."
    r"|ftplib|http|urllib|webbrowser|cpython\.run_|builtins\.(input|breakpoint)"
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_NAMES_OF_OTHERS = frozenset((
    "open", "eval", "exec", "compile", "__import__", "getattr", "setattr", "delattr", "vars", "globals", "locals",
    "input", "breakpoint", "exit", "system", "popen", "__class__", "__base__", "__subclasses__", "__globals__",
    "__builtins__", "__dict__", "gi_frame", "f_builtins", "f_globals", "f_back", "tofile", "get_global_func",
    "import_module", "load_module", "emit_te",
))  # fmt: skip
_OF_PYTHON = ("unicodedata",)  # which its parser imports for letters beyond ASCII
_TEMPORARY = tempfile.gettempdir()

KERNEL = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def kernel(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        FIRST
        for i in range(4):
            with T.sblock("last"):
                vi = T.axis.spatial(4, i)
                b[vi] = a[vi] + T.float32(1)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Module
        return R.call_tir(cls.kernel, (x,), out_ty=R.Tensor((4,), "float32"))
"""

watched: list[str] = []
is_watching = False


def hook(event: str, args: tuple[Any, ...]) -> None:
    if not is_watching:
        return
    if event == "open":
        path, mode, flags = args
        writes = (isinstance(mode, str) and set(mode) & set("wax+")) or (isinstance(flags, int) and flags & _WRITES)
        if writes and not str(path).startswith(_TEMPORARY):
            watched.append(f"open {path!r} {mode!r}")
    elif event == "import":
        if args[0].split(".")[0] not in (*sys.modules, *_OF_PYTHON):
            watched.append(f"import {args[0]}")
    elif event == "exec":
        names = set(_names(args[0])) & _NAMES_OF_OTHERS if args[0].co_filename in ("<ast>", "<string>") else None
        if names:
            watched.append(f"exec of {sorted(names)}")
    elif _FORBIDDEN.match(event) and not (event == "marshal.loads" and _is_importing()):
        watched.append(f"{event} {str(args)[:80]}")


def _is_importing() -> bool:
    """Whether Python's own import asks, which reads modules that were compiled before."""
    caller = sys._getframe(2)
    return caller.f_code.co_filename == "<frozen importlib._bootstrap_external>"


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def attacks(kind: str) -> list[dict[str, str]]:
    """The attacks of a kind, as they stand in the data."""
    found: list[dict[str, str]] = tomllib.loads((DATA / f"{kind}.toml").read_text(encoding="utf-8"))["attack"]
    return found


@cache
def _arrays(depth: int, times: int) -> str:
    """The nodes of an array that holds another one so many times, and so on."""
    inside = ({"type": "ffi.Array", "data": [number] * times} for number in range(depth))
    return json.dumps([{"type": "ffi.Array", "data": []}, *inside])


def filled(text: str, canary: Path) -> str:
    """``text`` with what is too long, or differs by machine, in the place of words in capitals."""
    words = {
        "'CANARY'": f"'{canary}'",
        '"CANARY"': f'"{canary}"',
        "touch CANARY": f"touch {canary}",
        "CANARY": repr(str(canary)),
        "AXES": "1, " * 5000,
        "NINES": "9" * 1000,
        "MINUSES": "-" * 2000 + "1",
        "PARENTHESES": "(" * 100_000,
        "BRACKETS": "[" * 100_000,
        "WIDE": _arrays(60, 2),
        "DEEP": _arrays(100_000, 1),
    }
    for word, stands_for in words.items():
        text = text.replace(word, stands_for)
    return text


def text_of(attack: dict[str, str], canary: Path) -> str:
    """The whole file of an attack."""
    if "kernel" in attack:
        return KERNEL.replace("FIRST", filled(attack["kernel"], canary))
    if "body" in attack:
        body = filled(attack["body"], canary)
        head = '@R.function\ndef main(x: R.Tensor((2,), "float32")):\n'
        return f"{head}    return {body}\n"
    if "nodes" in attack:
        nodes = filled(attack["nodes"], canary)
        last = nodes.count('"type"') - 1
        return f'{{"root_index": {max(last, 0)}, "nodes": {nodes}, "metadata": {{"tvm_version": "0.27.0.post1"}}}}'
    return filled(attack["text"], canary)


def main(kind: str, folder: Path) -> None:
    """Reads all attacks of the kind."""
    global is_watching
    suffix, read = _reader(kind)
    sys.addaudithook(hook)
    for number, attack in enumerate(attacks(kind)):
        canary, path = folder / f"canary{number}", folder / f"attack{number}{suffix}"
        path.write_text(text_of(attack, canary), encoding="utf-8", newline="")
        print(json.dumps({"starts": attack["name"]}), flush=True)
        watched.clear()
        is_watching = True
        try:
            read(path)
            outcome, message = "read", ""
        except Exception as error:
            outcome, message = type(error).__name__, str(error)
        finally:
            is_watching = False
        message = message.replace(str(path), "FILE")
        seen = [*watched, *(["the canary"] if canary.exists() else [])]
        print(json.dumps({"name": attack["name"], "outcome": outcome, "message": message, "seen": seen}), flush=True)


def _reader(kind: str) -> tuple[str, Callable[[Path], Any]]:
    """What reads such files; it has read an honest one before anything is watched."""
    from eqsat_layout.egraph.engine import Engine
    from eqsat_layout.egraph.rules import read_all, rule_files
    from eqsat_layout.models import resnet50
    from eqsat_layout.readers.modules import read_module, write_module

    def rules(path: Path) -> None:
        Engine(read_all(rule_files([path])))

    with tempfile.TemporaryDirectory() as folder:
        if kind == "rules":
            honest = Path(folder, "honest.egg")
            honest.write_text("(relation honest (i64))\n")
            rules(honest)
            return ".egg", rules
        suffix = {"texts": ".py", "graphs": ".json"}[kind]
        honest = Path(folder, f"honest{suffix}")
        write_module(resnet50(image=32, width=16, blocks=(1, 1, 1, 1)), honest)
        read_module(honest)
        return suffix, read_module


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
