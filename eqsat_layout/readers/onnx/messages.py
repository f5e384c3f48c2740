"""The protocol buffers that a model is made of.

In: a message. Out: it and all that are in it; the same with texts that are some.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def messages_of(message: Any) -> Iterator[Any]:
    """A protocol buffer and all that are in it."""
    open_messages = [message]
    while open_messages:
        message = open_messages.pop()
        yield message
        for field, value in message.ListFields():
            if field.message_type is not None:
                open_messages.extend([value] if hasattr(value, "ListFields") else value)


def with_texts(model: Any) -> Any:
    """``model``, or a copy in which every text is UTF-8: one that is not, which protobuf gives as bytes that no reader
    expects, with its odd bytes written out. Texts of attributes, which are bytes to protobuf, are such texts too."""
    if next(_odd_texts(model), None) is None:
        return model
    changed = type(model)()
    changed.CopyFrom(model)
    for message, field in _odd_texts(changed):
        value = getattr(message, field.name)
        if isinstance(value, str | bytes):
            setattr(message, field.name, _text(value, field))
        else:
            value[:] = [_text(one, field) for one in value]
    return changed


def _odd_texts(model: Any) -> Iterator[tuple[Any, Any]]:
    for message in messages_of(model):
        is_attribute = message.DESCRIPTOR.name == "AttributeProto"
        for field, value in message.ListFields():
            if field.type == field.TYPE_STRING or (is_attribute and field.type == field.TYPE_BYTES):
                texts = (value,) if isinstance(value, str | bytes) else value
                if any(_is_odd(one) for one in texts):
                    yield message, field


def _is_odd(value: str | bytes) -> bool:
    return isinstance(value, bytes) and value.decode(errors="ignore").encode() != value


def _text(value: str | bytes, field: Any) -> str | bytes:
    if isinstance(value, str):
        return value
    text = value.decode(errors="backslashreplace")
    return text if field.type == field.TYPE_STRING else text.encode()
