"""The text of an inline PTX statement, read: its instructions.

In: the template of an ``asm`` statement. Out: registers that it declares, and instructions with predicate and operands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from eqsat_layout.soundness.cuda.faults import SourceError

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INSTRUCTION: Final = re.compile(r"(?:@(!?)(%?\w+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_REGISTERS: Final = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.DOTALL)


@dataclass(frozen=True)
class Instruction:
    """``@predicate opcode operands``; ``negated``: ``@!predicate``. A vector operand keeps its braces."""

    opcode: str
    operands: tuple[str, ...]
    predicate: str | None = None
    negated: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.opcode.split("."))


@dataclass(frozen=True)
class Statement:
    """``registers``: their names and PTX types."""

    registers: tuple[tuple[str, str], ...]
    instructions: tuple[Instruction, ...]


def read_ptx(text: str, line: int) -> Statement:
    """Raises :class:`SourceError` for what is not instructions one after another."""
    body = _COMMENT.sub(" ", text).strip()
    while body.startswith("{") and body.endswith("}"):
        body = body[1:-1].strip()
    registers: list[tuple[str, str]] = []
    instructions: list[Instruction] = []
    for piece in filter(None, (piece.strip() for piece in body.split(";"))):
        if declared := _REGISTERS.fullmatch(piece):
            registers += [(name.strip().lstrip("%"), declared[1]) for name in declared[2].split(",")]
        elif (found := _INSTRUCTION.fullmatch(piece)) and "{" not in found[3]:
            predicate = found[2].lstrip("%") if found[2] else None
            instructions.append(Instruction(found[3], tuple(split_operands(found[4])), predicate, found[1] == "!"))
        else:
            raise SourceError(f"line {line}: inline PTX {piece!r} can't be read")
    return Statement(tuple(registers), tuple(instructions))


def split_operands(text: str) -> list[str]:
    """At commas outside of braces and brackets."""
    pieces, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "{[") - (letter in "}]")
        if letter == "," and not depth:
            pieces.append(text[begin:at].strip())
            begin = at + 1
    return [*pieces, text[begin:].strip()] if text.strip() else []
