"""What commands share: options, consoles, errors in one line, texts in files.

In: what was typed. Out: values that are checked, or :class:`~eqsat_layout.errors.EqsatError` that names the option.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from eqsat_layout.cli.native_warnings import without_tvm_warnings
from eqsat_layout.errors import EqsatError
from eqsat_layout.report.figures import printable
from eqsat_layout.report.text import SafeConsole
from eqsat_layout.system.suffixes import path_of
from eqsat_layout.system.whole_files import whole_file
from eqsat_layout.system.without_torch import without_torch

if TYPE_CHECKING:
    from eqsat_layout.report.plan import Plan

_SIZES = re.compile(r"[0-9]{1,19}(\|[0-9]{1,19})*|[0-9]{1,19}-[0-9]{1,19}")
_SIZE = re.compile(r"0*[1-9][0-9]{0,18}")

DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error, and TVM's own warnings.")]
TargetOption = Annotated[
    str | None,
    typer.Option(
        metavar="TARGET",
        help="'llvm', 'opencl', 'cuda', or a target of TVM's as JSON. Default: the CPU of this machine.",
    ),
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=SIZES",
        help='Sizes of an input: "x=1,3,224,224"; "?" leaves one open, "1|8" makes a program for each, "1-8" for 1, 2, '
        "4, 8. Repeatable.",
    ),
]
ApproxOption = Annotated[
    bool, typer.Option("--approx/--exact", help="Allow algorithms that round differently, such as Winograd.")
]
ObjectiveOption = Annotated[
    str,
    typer.Option(
        metavar="time|traffic|copies",
        help="What plans are compared by: seconds, the bytes that they move, or kernels that only copy.",
    ),
]
PrecisionOption = Annotated[
    str | None,
    typer.Option(metavar="float16|bfloat16", help="Compute the products of a float32 model with operands so."),
]
AssumeOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=SIZE",
        help="The size that costs assume for a symbolic one, by its name; 64 if none is given. Repeatable.",
    ),
]
RulesOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="A rule file of yours (.egg), used beside those of the package. Repeatable."),
]
SourceArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="Relax text (.py), TVM JSON, ONNX, or a torch.export archive (.pt2).")
]


def parse_shapes(options: Sequence[str] | None) -> dict[str, tuple[Any, ...]] | None:
    """``["x=1|8,3,?,1-4"]`` as ``{"x": ((1, 8), 3, None, range(1, 5))}``; None for no options."""
    shapes: dict[str, tuple[Any, ...]] = {}
    for option in options or ():
        name, equals, sizes = option.rpartition("=")
        words = [word.strip() for word in sizes.split(",")] if sizes.strip() else []
        if not name or not equals or not all(word == "?" or _SIZES.fullmatch(word) for word in words):
            raise EqsatError(f"--shape {option!r}: expected NAME=SIZE[,SIZE...]")
        if any(isinstance(size, range) and not size for size in map(_size, words)):
            raise EqsatError(f"--shape {option!r}: a range ends before it begins")
        shapes[name.strip()] = tuple(map(_size, words))
    return shapes or None


def parse_assumed(options: Sequence[str] | None) -> dict[str, int] | None:
    """``["batch=8"]`` as ``{"batch": 8}``; None for no options."""
    sizes: dict[str, int] = {}
    for option in options or ():
        name, equals, size = option.partition("=")
        if not name or not equals or not _SIZE.fullmatch(size.strip()):
            raise EqsatError(f"--assume {option!r}: expected NAME=SIZE, 1 or more")
        sizes[name.strip()] = int(size)
    return sizes or None


def _size(word: str) -> Any:
    if "-" in word:
        first, last = map(int, word.split("-"))
        return range(first, last + 1)
    sizes = () if word == "?" else tuple(map(int, word.split("|")))
    return sizes if len(sizes) > 1 else sizes[0] if sizes else None


CLOSED: Final = 128 + signal.SIGPIPE
"""The exit code where whoever reads standard output has seen enough, as of programs that the system ends then."""


def parse_target(text: str | None) -> Any:
    """A target as TVM takes it: a string, or a dict where the text is JSON."""
    if text is None or not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise EqsatError(f"--target {text!r} is not JSON: {error}") from error


def parse_layouts(options: Sequence[str]) -> dict[str, list[str]]:
    """``["op=A,B"]`` as ``{"op": ["A", "B"]}``."""
    layouts: dict[str, list[str]] = {}
    for option in options:
        op, equals, names = option.partition("=")
        values = [name.strip() for name in names.split(",")]
        if not op.strip() or not equals or not all(values):
            raise EqsatError(f"--desired-layout {option!r}: expected OP=LAYOUT[,LAYOUT...]")
        layouts[op.strip()] = values
    return layouts


def check_outputs(destinations: Sequence[Path]) -> None:
    """:class:`EqsatError` for files that can't be written, before anything is computed that would be lost."""
    for destination in map(path_of, destinations):
        if destination.is_dir():
            raise EqsatError(f"{destination}: Is a directory")
        if not destination.absolute().parent.is_dir():
            raise EqsatError(f"{destination}: No such file or directory")
        if not os.access(destination if destination.exists() else destination.absolute().parent, os.W_OK):
            raise EqsatError(f"{destination}: Permission denied")


def refuse_overwriting(source: Path, destinations: Sequence[Path]) -> None:
    """No output is the input or another output, and each is in a folder that there is."""
    check_outputs(destinations)
    for destination in destinations:
        if destination.resolve() == source.resolve():
            raise EqsatError(f"{destination}: this is the input, which is never overwritten")
    if len({d.resolve() for d in destinations}) < len(destinations):
        raise EqsatError(f"{destinations[0]}: named for two outputs")


def write_plan(found: Plan, path: Path) -> None:
    """As JSON where the name ends so, else as text."""
    text = json.dumps(found.to_dict(), indent=2) if path.suffix == ".json" else str(found)
    write_text(path, text + "\n")


def write_text(path: Path, text: str) -> None:
    """:class:`EqsatError` names a file that can't be written."""
    try:
        with whole_file(path, is_text=True) as file:
            file.write(text)
    except OSError as error:
        raise EqsatError(f"{path}: {error.strerror or error}") from error


def make_console() -> Console:
    """Standard output, as wide as the terminal; 100 columns in a file or a pipe, nothing where it is closed."""
    if sys.stdout is None:
        return _Output(width=100, file=io.StringIO())
    return _Output(width=None if sys.stdout.isatty() else 100)


class _Output(SafeConsole):
    def print(self, *objects: Any, **options: Any) -> None:
        """:class:`EqsatError` where standard output takes no more, as a file on a disk that is full."""
        try:
            super().print(*objects, **options)
            self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()
        except OSError as error:
            drop_output()
            raise EqsatError(f"standard output: {error.strerror or error}") from error

    def on_broken_pipe(self) -> None:
        """Where rich itself, too, finds the output closed."""
        drop_output()
        raise SystemExit(CLOSED)


@contextmanager
def errors(debug: bool) -> Iterator[None]:
    """One line for an error that the package raises on purpose; anything else is a bug and shows its traceback.

    Warnings of TVM's C++ are shown with ``debug`` only.
    """
    try:
        with without_torch(), nullcontext() if debug else without_tvm_warnings():
            yield
    except EqsatError as error:
        if debug:
            raise
        print(printable(f"eqsat-layout: {error}"), file=sys.stderr)
        raise typer.Exit(2) from None


def drop_output() -> None:
    """What is left of standard output, which Python writes when it ends, goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
