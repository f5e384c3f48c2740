"""What each PTX instruction does, in C++: calls of the runtime (``runtime/device_ptx.h``).

In: an instruction of an ``asm`` statement. Out: a C++ statement. One that has no rule here is refused by name. The
rules follow the PTX ISA, "Instruction Set"; opcodes are read word by word, so modifiers that only hint are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from eqsat_layout.soundness.cuda.faults import SourceError
from eqsat_layout.soundness.cuda.ptx import Instruction, split_operands

TYPES: Final = {
    "pred": "bool",
    **{f"{kind}{bits}": f"uint{bits}_t" for kind in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    "f16": "half",
    "bf16": "nv_bfloat16",
    "f32": "float",
    "f64": "double",
    "f16x2": "half2",
    "bf16x2": "nv_bfloat162",
}
"""C++'s types of registers."""

_INTEGER: Final = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)[uU]?")
_FLOAT: Final = re.compile(r"0[fF]([0-9a-fA-F]{8})")
_COMPARISONS: Final = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "hi": ">"}
_BINARY: Final = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>"}
_UNARY: Final = {
    "ex2": "exp2f",
    "lg2": "log2f",
    "rcp": "__frcp_rn",
    "sqrt": "sqrtf",
    "rsqrt": "rsqrtf",
    "sin": "sinf",
    "cos": "cosf",
    "tanh": "tanhf",
}
_HINTS: Final = {"prefetch", "prefetchu", "nanosleep", "discard", "applypriority"}
"""They change when, never what."""

_ROUNDINGS: Final = frozenset({"rn", "ftz", "approx", "lo"})
"""Modifiers of arithmetic that the rules below stand for."""

_SPACES: Final = {"shared": "shared", "shared::cta": "shared", "global": "global"}
_PLAIN_MOVES: Final = {*_SPACES, "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "volatile", "weak", "v2", "v4"}


class Writer:
    """``registers``: those that the statement declares; ``%0`` and on are variables ``sim_op0`` and on."""

    def __init__(self, line: int, registers: dict[str, str]):
        self.line = line
        self._registers = registers

    def written(self, instruction: Instruction) -> str:
        """The C++ of one instruction."""
        rule, counts = _RULES.get(instruction.words[0], (None, ()))
        code = rule(self, instruction) if rule and len(instruction.operands) in counts else None
        if code is None:
            raise self.refused(instruction)
        if instruction.predicate is None:
            return code
        sign = "!" if instruction.negated else ""
        return f"if ({sign}{self.variable(instruction.predicate)}) {{ {code} }}"

    def refused(self, instruction: Instruction) -> SourceError:
        return SourceError(f"line {self.line}: the simulator does not know the PTX instruction {instruction.opcode!r}")

    def value(self, operand: str, kind: str) -> str:
        """An operand's bits as a C++ type."""
        if _INTEGER.fullmatch(operand):
            return f"static_cast<{kind}>({operand})"
        if number := _FLOAT.fullmatch(operand):
            return f"sim::as<{kind}>(0x{number[1]}u)"
        if operand == "%laneid":
            return f"static_cast<{kind}>(sim::lane())"
        return f"sim::as<{kind}>({self.variable(operand)})"

    def put(self, operand: str, value: str) -> str:
        return "" if operand == "_" else f"sim::put({self.variable(operand)}, {value});"

    def address(self, operand: str, kind: str) -> str:
        """``[register]`` or ``[register + number]``, as an offset into shared memory or a pointer."""
        inside = re.fullmatch(r"\[\s*([%\w]+)\s*(?:\+\s*(-?\w+)\s*)?\]", operand)
        if not inside:
            raise SourceError(f"line {self.line}: the address {operand!r} of inline PTX can't be read")
        offset = inside[2] or "0"
        if offset.startswith("%"):
            offset = self.variable(offset)
        if kind == "shared":
            return f"static_cast<unsigned>((size_t)({self.variable(inside[1])}) + ({offset}))"
        return f"((char*)({self.variable(inside[1])}) + ({offset}))"

    def words(self, operand: str) -> list[str]:
        """The registers of a vector ``{a, b}``, or of a single one."""
        return split_operands(operand[1:-1]) if operand.startswith("{") else [operand]

    def array(self, name: str, operand: str, kind: str = "uint32_t") -> str:
        values = ", ".join(self.value(word, kind) for word in self.words(operand))
        return f"{kind} {name}[] = {{{values}}};"

    def results(self, name: str, operand: str) -> str:
        return " ".join(self.put(word, f"{name}[{i}]") for i, word in enumerate(self.words(operand)))

    def is_predicate(self, operand: str) -> bool:
        return self._registers.get(operand.lstrip("%")) == "pred"

    def variable(self, operand: str) -> str:
        """C++'s name of a register or an operand."""
        if re.fullmatch(r"%\d+", operand):
            return f"sim_op{operand[1:]}"
        register = operand.lstrip("%")
        if register not in self._registers:
            raise SourceError(f"line {self.line}: inline PTX names a register {operand!r} that it does not declare")
        return f"sim_reg_{register}"


def _mma(writer: Writer, instruction: Instruction) -> str | None:
    form = re.fullmatch(
        r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col(\.satfinite)?\.(f32|f16|s32)\.(\w+)\.(\w+)\.(?:f32|f16|s32)",
        instruction.opcode,
    )
    depths = {"f16": (8, 16), "bf16": (8, 16), "tf32": (4, 8), "s8": (16, 32), "u8": (16, 32)}
    if not form or int(form[1]) not in depths.get(form[4], ()) or form[5] not in depths:
        return None
    d, a, b, c = instruction.operands
    result = f"{form[3]}_saturated" if form[2] else form[3]
    kinds = f"sim::Element::{form[4]}, sim::Element::{form[5]}, sim::Result::{result}"
    arrays = " ".join(writer.array(name, operand) for name, operand in (("a_", a), ("b_", b), ("c_", c)))
    return (
        f"{{ uint32_t d_[{len(writer.words(d))}]; {arrays} "
        f"sim::mma({writer.line}, {form[1]}, {kinds}, d_, a_, b_, c_); {writer.results('d_', d)} }}"
    )


def _matrices(writer: Writer, instruction: Instruction) -> str | None:
    form = re.fullmatch(
        r"(ld|st)matrix\.sync\.aligned(?:\.m8n8)?\.x([124])(?:\.m8n8)?(\.trans)?\.shared(?:::cta)?\.b16",
        instruction.opcode,
    )
    if not form:
        return None
    registers, row = instruction.operands if form[1] == "ld" else reversed(instruction.operands)
    head = f"sim::{form[1]}matrix({writer.line}, {form[2]}, {'true' if form[3] else 'false'}, r_, "
    call = f"{head}{writer.address(row, 'shared')});"
    if form[1] == "st":
        return f"{{ {writer.array('r_', registers)} {call} }}"
    return f"{{ uint32_t r_[{form[2]}]; {call} {writer.results('r_', registers)} }}"


def _copy(writer: Writer, instruction: Instruction) -> str | None:
    if instruction.words[:3] == ("cp", "async", "bulk"):
        return _bulk_copy(writer, instruction) if len(instruction.operands) == 3 else None
    opcode, operands = re.sub(r"\.L2::\d+B", "", instruction.opcode), instruction.operands
    if not operands:
        groups = {"cp.async.commit_group": "sim::cp_async_commit();", "cp.async.wait_all": "sim::cp_async_wait_all();"}
        return groups.get(opcode)
    if opcode == "cp.async.wait_group":
        return f"sim::cp_async_wait({writer.value(operands[0], 'unsigned')});"
    if len(operands) < 3 or not re.fullmatch(r"cp\.async\.(ca|cg)\.shared(::cta)?\.global", opcode):
        return None
    size = writer.value(operands[2], "unsigned")
    taken = writer.value(operands[3], "unsigned") if len(operands) > 3 else size
    if len(operands) > 3 and writer.is_predicate(operands[3]):  # whether to ignore the source
        taken = f"({taken} ? 0 : {size})"
    to, source = writer.address(operands[0], "shared"), writer.address(operands[1], "global")
    return f"sim::cp_async({writer.line}, {to}, {source}, {size}, {taken}, {str('.cg.' in opcode).lower()});"


def _bulk_copy(writer: Writer, instruction: Instruction) -> str | None:
    """By a tensor map whose axes are all there (tiled), to this block's shared memory."""
    counted = r"mbarrier::complete_tx::bytes"
    form = rf"cp\.async\.bulk\.tensor\.[1-5]d\.shared::(?:cta|cluster)\.global(?:\.tile)?\.{counted}"
    if not re.fullmatch(form, instruction.opcode):
        return None
    to, source, barrier = instruction.operands
    parts = split_operands(source[1:-1])
    places = ", ".join(writer.value(one, "int") for one in writer.words(parts[-1]))
    where = [writer.address(one, "shared") for one in (to, barrier)]
    given = f"(const void*){writer.address(f'[{parts[0]}]', 'global')}"
    return f"sim::bulk_tensor({writer.line}, {where[0]}, {given}, {{{places}}}, {where[1]});"


_OF_BLOCK: Final = r"(?:\.(?:release|acquire)\.cta)?\.shared(?:::cta)?\.b64"


def _mbarrier(writer: Writer, instruction: Instruction) -> str | None:
    """Those of this block."""
    kinds = r"init|arrive(?:\.expect_tx)?|(?:try|test)_wait\.parity"
    form, operands = re.fullmatch(rf"mbarrier\.({kinds}){_OF_BLOCK}", instruction.opcode), instruction.operands
    if not form or (form[1] in ("init", "arrive")) != (len(operands) == 2):
        return None
    place = writer.address(operands[form[1] != "init"], "shared")
    last = "0u" if form[1] == "arrive" else writer.value(operands[-1], "unsigned")
    name, _, waits = form[1].partition("_wait")
    if waits:
        return writer.put(operands[0], f"sim::mbarrier_try_wait({writer.line}, {place}, {last})")
    name = name.partition(".")[0]
    return f"sim::mbarrier_{name}({writer.line}, {place}, {last});" if operands[0] == "_" or name == "init" else None


def _move(writer: Writer, instruction: Instruction) -> str | None:
    """``ld`` and ``st`` of shared and global memory, vectors too."""
    words = instruction.words
    place = next((_SPACES[word] for word in words if word in _SPACES), None)
    kind = TYPES.get(words[-1])
    modifiers = {word for word in words[1:-1] if not re.fullmatch(r"L[12]::\w+", word)}
    if place is None or kind is None or not modifiers <= _PLAIN_MOVES:
        return None
    count = next((int(word[1]) for word in words if word in ("v2", "v4")), 1)
    if words[0] == "ld":
        values, at = instruction.operands
        call = f"sim::load_{place}({writer.line}, v_, {writer.address(at, place)}, sizeof v_);"
        return f"{{ {kind} v_[{count}]; {call} {writer.results('v_', values)} }}"
    at, values = instruction.operands
    call = f"sim::store_{place}({writer.line}, {writer.address(at, place)}, v_, sizeof v_);"
    return f"{{ {writer.array('v_', values, kind)} {call} }}"


def _set_predicate(writer: Writer, instruction: Instruction) -> str | None:
    _, comparison, kind = instruction.words if len(instruction.words) == 3 else ("", "", "")
    if comparison not in _COMPARISONS or kind not in TYPES:
        return None
    to, left, right = instruction.operands
    test = f"{writer.value(left, TYPES[kind])} {_COMPARISONS[comparison]} {writer.value(right, TYPES[kind])}"
    return writer.put(to, test)


def _select(writer: Writer, instruction: Instruction) -> str | None:
    kind = TYPES.get(instruction.words[-1])
    if kind is None:
        return None
    to, left, right, which = instruction.operands
    return writer.put(to, f"{writer.value(which, 'bool')} ? {writer.value(left, kind)} : {writer.value(right, kind)}")


def _convert(writer: Writer, instruction: Instruction) -> str | None:
    to, source = instruction.operands[:2]
    words = instruction.words
    if words[1:] in (("rn", "f16x2", "f32"), ("rn", "bf16x2", "f32")):  # the first number is the upper half
        low, high = (writer.value(operand, "float") for operand in reversed(instruction.operands[1:]))
        return writer.put(to, f"{TYPES[words[2]]}({low}, {high})")
    if len(instruction.operands) > 2:
        return None
    if words[1:] == ("rna", "tf32", "f32"):
        return writer.put(to, f"sim::tf32_of({writer.value(source, 'float')})")
    if words[:2] == ("cvta", "to") and words[2] in ("shared", "shared::cta"):
        offset = f"sim::shared_offset({writer.line}, (const void*)({writer.value(source, 'const char*')}))"
        return writer.put(to, f"static_cast<uint64_t>({offset})")
    target, origin = TYPES.get(words[-2]), TYPES.get(words[-1])
    if words[0] != "cvt" or target is None or origin is None or not {*words[1:-2]} <= {"rn", "rzi", "rni", "ftz"}:
        return None
    value = writer.value(source, origin)
    return writer.put(to, f"static_cast<{target}>({f'rintf({value})' if 'rni' in words else value})")


def _arithmetic(writer: Writer, instruction: Instruction) -> str | None:
    words, operands = instruction.words, instruction.operands
    kind = TYPES.get(words[-1])
    if kind is None or not _ROUNDINGS.issuperset(words[1:-1]):
        return None
    values = [writer.value(operand, kind) for operand in operands[1:]]
    if words == ("mov", words[-1]):
        return writer.put(operands[0], values[0])
    if words[0] in ("fma", "mad"):
        product = f"fma({', '.join(values)})" if words[0] == "fma" else f"{values[0]} * {values[1]} + {values[2]}"
        return writer.put(operands[0], f"static_cast<{kind}>({product})")
    if words[0] in ("min", "max"):
        return writer.put(operands[0], f"{words[0]}({', '.join(values)})")
    if words[0] in _UNARY and kind == "float":
        return writer.put(operands[0], f"{_UNARY[words[0]]}({values[0]})")
    if words[0] in _BINARY:
        return writer.put(operands[0], f"static_cast<{kind}>({values[0]} {_BINARY[words[0]]} {values[1]})")
    return None


def _dot(writer: Writer, instruction: Instruction) -> str | None:
    kinds = {"u32": "uint8_t", "s32": "int8_t"}
    a, b = (kinds.get(word) for word in instruction.words[1:3])
    values = [writer.value(operand, "int") for operand in instruction.operands[1:]]
    return writer.put(instruction.operands[0], f"sim_dp4a<{a}, {b}>({', '.join(values)})") if a and b else None


def _barrier(writer: Writer, instruction: Instruction) -> str | None:
    if instruction.opcode in ("bar.sync", "barrier.sync", "barrier.sync.aligned") and instruction.operands == ("0",):
        return f"sim::barrier_at({writer.line});"
    if instruction.opcode == "bar.warp.sync":
        return f"sim::sync_warp({writer.line}, {writer.value(instruction.operands[0], 'unsigned')});"
    return None


def _warpgroup(writer: Writer, instruction: Instruction) -> str | None:
    """Products of four warps whose operands lie along the steps, in shared memory."""
    operands, words = instruction.operands, instruction.words
    if words[1:] in (("fence", "sync", "aligned"), ("commit_group", "sync", "aligned")) and not operands:
        return f"sim::wgmma_{words[1].removesuffix('_group')}();"
    if words[1:] == ("wait_group", "sync", "aligned") and len(operands) == 1:
        return f"sim::wgmma_wait({writer.value(operands[0], 'unsigned')});"
    form = re.fullmatch(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.(b?f16)\.\2", instruction.opcode)
    if not form or operands[4:] != ("1", "1", "0", "0"):
        return None
    sums = ", ".join(f"&{writer.variable(word)}" for word in writer.words(operands[0]))
    given = [*(writer.value(one, "uint64_t") for one in operands[1:3]), writer.value(operands[3], "bool")]
    call = f"sim::wgmma({writer.line}, sim::Element::{form[2]}, {form[1]}, d_, {', '.join(given)});"
    return f"{{ float* d_[] = {{{sums}}}; {call} }}"


def _fence(_: Writer, instruction: Instruction) -> str:
    """Those that reach no further than the block order nothing between blocks."""
    if instruction.words[1:2] == ("mbarrier_init",):
        return "sim::fence_barriers();"
    if instruction.words[1:3] == ("proxy", "async"):
        return "sim::fence_proxy();"
    return "sim::fence();" if {"gl", "gpu", "sys"} & {*instruction.words} else ";"


def _other_launches(_: Writer, instruction: Instruction) -> str | None:
    """The next one may start whenever it likes: it waits for the end of this one."""
    rules = {"griddepcontrol.wait": "sim::wait_for_launches();", "griddepcontrol.launch_dependents": ";"}
    return rules.get(instruction.opcode)


def _hint(_: Writer, __: Instruction) -> str:
    return ";"


_Rule = Callable[[Writer, Instruction], str | None]

_RULES: Final[dict[str, tuple[_Rule, tuple[int, ...]]]] = {
    "mma": (_mma, (4,)),
    **dict.fromkeys(("ldmatrix", "stmatrix"), (_matrices, (2,))),
    "cp": (_copy, (0, 1, 3, 4)),
    **dict.fromkeys(("ld", "st"), (_move, (2,))),
    "setp": (_set_predicate, (3,)),
    "selp": (_select, (4,)),
    "cvt": (_convert, (2, 3)),
    "cvta": (_convert, (2,)),
    "dp4a": (_dot, (4,)),
    **dict.fromkeys(("bar", "barrier"), (_barrier, (1,))),
    **dict.fromkeys((*_BINARY, "min", "max"), (_arithmetic, (3,))),
    **dict.fromkeys((*_UNARY, "mov"), (_arithmetic, (2,))),
    **dict.fromkeys(("fma", "mad"), (_arithmetic, (4,))),
    **dict.fromkeys(("fence", "membar"), (_fence, (0,))),
    "mbarrier": (_mbarrier, (2, 3)),
    "wgmma": (_warpgroup, (0, 1, 8)),
    "griddepcontrol": (_other_launches, (0,)),
    **dict.fromkeys(_HINTS, (_hint, (0, 1))),
}
"""A rule and how many operands it takes, by the first word of the opcode."""
