"""One ``asm`` statement of the source, as the C++ that does the same.

In: what stands between its parentheses. Out: a block of C++ on one line.
"""

from __future__ import annotations

import re
from typing import Final

from eqsat_layout.soundness.cuda.faults import SourceError
from eqsat_layout.soundness.cuda.instructions import TYPES, Writer
from eqsat_layout.soundness.cuda.ptx import read_ptx

_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_OPERAND: Final = re.compile(r'\s*(?:\[\w+\]\s*)?"([=+&]*)(\w)"\s*\(')
_ESCAPES: Final = {r"\n": "\n", r"\t": "\t", r"\"": '"', r"\\": "\\"}


def translated(inside: str, line: int) -> str:
    """Raises :class:`SourceError` for an instruction that the simulator does not know."""
    template, outputs, inputs, *_ = [*_sections(inside), "", "", ""]
    text = "".join(_STRING.findall(template))
    for escape, letter in _ESCAPES.items():
        text = text.replace(escape, letter)
    statement = read_ptx(re.sub(r"%%(?=\w)", "", text), line)
    parts, number = [], 0
    for section, declaration in ((outputs, "auto&"), (inputs, "auto")):
        for expression in _operands(section, line):
            parts.append(f"{declaration} sim_op{number} = {expression};")
            number += 1
    registers = dict(statement.registers)
    for name, kind in registers.items():
        if kind not in TYPES:
            raise SourceError(f"line {line}: inline PTX declares {name!r} of the unknown type {kind!r}")
        parts.append(f"{TYPES[kind]} sim_reg_{name}{{}};")
    writer = Writer(line, registers)
    parts += [writer.written(instruction) for instruction in statement.instructions]
    return "{ " + " ".join(" ".join(parts).split("\n")) + " }"


def end_of_parentheses(text: str, begin: int) -> int:
    """Where those that open at ``begin`` close, strings skipped."""
    depth = 0
    for found in re.compile(r'"(?:[^"\\]|\\.)*"|[()]').finditer(text, begin):
        depth += (found[0] == "(") - (found[0] == ")")
        if not depth:
            return found.start()
    return len(text)


def _sections(inside: str) -> list[str]:
    pieces, depth, begin = [], 0, 0
    for found in re.finditer(r'"(?:[^"\\]|\\.)*"|[()\[\]:]', inside):
        depth += (found[0] in "([") - (found[0] in ")]")
        if found[0] == ":" and not depth:
            pieces.append(inside[begin : found.start()])
            begin = found.end()
    return [*pieces, inside[begin:]]


def _operands(section: str, line: int) -> list[str]:
    expressions, at = [], 0
    while section[at:].strip():
        found = _OPERAND.match(section, at)
        if not found:
            raise SourceError(f"line {line}: the operands {section.strip()!r} of inline PTX can't be read")
        end = end_of_parentheses(section, found.end() - 1)
        expressions.append(section[found.end() - 1 : end + 1])
        at = end + 1
        while section[at : at + 1] in (",", " ", "\n", "\t"):
            at += 1
    return expressions
