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
    expects, with its odd bytes written out."""
    if next(_odd_texts(model), None) is None:
        return model
    changed = type(model)()
    changed.CopyFrom(model)
    for message, field in _odd_texts(changed):
        value = getattr(message, field.name)
        if isinstance(value, bytes):
            setattr(message, field.name, _text(value))
        else:
            value[:] = [_text(one) for one in value]
    return changed


def _odd_texts(model: Any) -> Iterator[tuple[Any, Any]]:
    for message in messages_of(model):
        for field, value in message.ListFields():
            if field.type == field.TYPE_STRING:
                texts = (value,) if isinstance(value, str | bytes) else value
                if any(isinstance(one, bytes) for one in texts):
                    yield message, field


def _text(value: str | bytes) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
