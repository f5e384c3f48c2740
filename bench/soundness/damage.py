"""Damage to files: of their bytes, and of what they are made of, so that it reaches those who read that.

In: the bytes of an honest file, and a random number generator. Out: damaged ones.
"""

from __future__ import annotations

import io
import random
import re
import struct
import zipfile
from collections.abc import Callable
from typing import Any

Damage = Callable[[bytes, random.Random], bytes]

_NUMBERS = (0, 1, 0x7F, 0xFF, 0xFFFF, 1 << 31, (1 << 31) - 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_WORDS = [b"null", b"-1", b"1e999", b"NaN", b"9" * 400, b"[" * 3000, b"{}", b"[]", b'""', b"true", b"4294967296"]
_TOKEN = re.compile(rb'"(?:[^"\\\n]|\\.)*"|[\w.+-]+|\s+|.', re.DOTALL)
_FEW = (1, 1, 1, 2, 3, 8)
"""How many things are changed."""
_SEGMENT, _LINKING = 56, 2
"""Bytes in which an ELF file tells of a segment, and the kind of those by which it is linked."""


def of_bytes(data: bytes, rng: random.Random) -> bytes:
    """A few bytes are changed, cut out, repeated, or taken from elsewhere."""
    made = bytearray(data)
    for _ in range(rng.choice(_FEW)):
        at = rng.randrange(len(made) + 1)
        way = rng.randrange(8)
        if way == 0 and made:
            made[min(at, len(made) - 1)] ^= 1 << rng.randrange(8)
        elif way == 1:
            del made[at : None if rng.random() < 0.3 else at + rng.choice((1, 4, 8, 64))]
        elif way == 2:
            made[at : at + 8] = rng.choice(_NUMBERS).to_bytes(8, rng.choice(("little", "big")))
        elif way == 3:
            made[at : at + 4] = (rng.choice(_NUMBERS) & 0xFFFFFFFF).to_bytes(4, "little")
        elif way == 4:
            start = rng.randrange(len(data) + 1)
            made[at:at] = data[start : start + rng.choice((1, 8, 64, 1000))]
        elif way == 5:
            made[at:at] = rng.choice(_WORDS)
        elif way == 6:  # another number, where one stands
            digits = [i for i in range(len(made)) if made[i : i + 1].isdigit()]
            if digits:
                place = rng.choice(digits)
                made[place : place + 1] = rng.choice(_WORDS)
        else:
            made[at : at + 3] = bytes(rng.randrange(256) for _ in range(3))
    return bytes(made)


def of_tokens(data: bytes, rng: random.Random) -> bytes:
    """Words, numbers and strings are left out, doubled, exchanged, or become others of the file."""
    tokens = _TOKEN.findall(data)
    for _ in range(rng.choice(_FEW)):
        solid = [place for place, token in enumerate(tokens) if not token.isspace()]
        if not solid:
            break
        at, other = rng.choice(solid), rng.choice(solid)
        way = rng.randrange(5)
        if way == 0:
            del tokens[at]
        elif way == 1:
            tokens[at:at] = tokens[at : at + rng.choice((1, 4, 16))]
        elif way == 2:
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif way == 3:
            same = [place for place in solid if tokens[place][:1].isdigit() == tokens[at][:1].isdigit()]
            tokens[at] = tokens[rng.choice(same)]
        else:
            tokens[at] = rng.choice(_WORDS)
    return b"".join(tokens)


def of_segments(data: bytes, rng: random.Random) -> bytes:
    """What a library for 64 bits says of its segments, or for linking it, is exchanged or becomes another number."""
    made = bytearray(data)
    start, count = struct.unpack_from("<32xQ16xH", made)
    table = [(start + _SEGMENT * one, _SEGMENT) for one in range(count)]
    linking = [struct.unpack_from("<8xQ16xQ", made, at) for at, _ in table if made[at] == _LINKING]
    entries = [(at, 16) for place, size in linking for at in range(place, place + size, 16)]
    for _ in range(rng.choice(_FEW)):
        (at, size), (other, _) = rng.sample(rng.choice((table, table, entries)), 2)
        field = rng.randrange(0, size, 8)
        way = rng.randrange(5)
        if way == 0:  # in another order
            made[at : at + size], made[other : other + size] = made[other : other + size], made[at : at + size]
        elif way == 1:
            made[at + field : at + field + 8] = made[other + field : other + field + 8]
        elif way == 2:
            made[at + field : at + field + 8] = rng.choice(_NUMBERS).to_bytes(8, "little")
        elif way == 3:
            (told,) = struct.unpack_from("<Q", made, at + field)
            struct.pack_into("<Q", made, at + field, (told + rng.choice((-4096, -8, 8, 4096, 1 << 20))) & _NUMBERS[-1])
        else:
            made[at + field + rng.randrange(8)] ^= 1 << rng.randrange(8)
    return bytes(made)


def of_members(data: bytes, rng: random.Random) -> bytes:
    """A member of an archive is damaged, whose checksum is right all the same; or it has another's contents."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {one.filename: archive.read(one) for one in archive.infolist()}
    chosen = rng.choice(list(members))
    way = rng.randrange(8)
    if way == 0:
        del members[chosen]
    elif way == 1:
        members[chosen] = members[rng.choice(list(members))]
    else:
        members[chosen] = rng.choice((of_bytes, of_tokens))(members[chosen], rng)
    with zipfile.ZipFile(made, "w") as archive:
        for name, contents in members.items():
            archive.writestr(name, contents)
    return made.getvalue()


def of_fields(data: bytes, rng: random.Random) -> bytes:
    """Fields of an ONNX model hold other numbers and texts, are left out, or are doubled."""
    import onnx

    model = onnx.load_from_string(data)
    for _ in range(rng.choice(_FEW)):
        message = rng.choice(list(_messages(model)))
        fields = [field for field, _ in message.ListFields()]
        if fields:
            _change(message, rng.choice(fields), rng)
    return bytes(model.SerializeToString())


def _messages(message: Any) -> Any:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in value if _is_repeated(message, field) else [value]:
                yield from _messages(one)


def _is_repeated(message: Any, field: Any) -> bool:
    return hasattr(getattr(message, field.name), "append") or hasattr(getattr(message, field.name), "add")


def _change(message: Any, field: Any, rng: random.Random) -> None:
    value, is_repeated = getattr(message, field.name), _is_repeated(message, field)
    if rng.random() < 0.2:
        message.ClearField(field.name)
    elif is_repeated and rng.random() < 0.5:
        value.extend([rng.choice(list(value))])
    elif field.message_type is not None:
        if is_repeated:
            del value[rng.randrange(len(value))]
        else:
            message.ClearField(field.name)
    elif is_repeated:
        place = rng.randrange(len(value))
        value[place] = _other(value[place], field, rng)
    else:
        setattr(message, field.name, _other(value, field, rng))


def _other(value: Any, field: Any, rng: random.Random) -> Any:
    if isinstance(value, bytes):
        return of_bytes(value, rng)
    if isinstance(value, str):
        return rng.choice((value + "_", "", "x", "../x", "w", "Conv", "Loop", "If", "n" * 5000))
    if isinstance(value, float):
        return rng.choice((0.0, -1.0, 1e38, float("nan"), float("inf")))
    if field.enum_type is not None:  # protobuf takes no other numbers
        return rng.choice([one.number for one in field.enum_type.values])
    bits = 31 if field.cpp_type == field.CPPTYPE_INT32 else 63
    return rng.choice((0, 1, -1, 2, 7, 1 << 20, (1 << bits) - 1, -(1 << bits), value + 1))
