"""Parameters and buffers that a compiled graph holds as constants, watched for changes.

In: tensors of torch. Out: :class:`Held`, that tells whether each is the tensor that it was, in the memory that it was,
with the elements that it had; whether tensors share memory. torch counts most writes, but not those through ``.data``,
through NumPy, or by the kernels of norms that train; so elements are looked at, all of a small tensor and some of a
large one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

_SMALL: Final = 1_024
"""Bytes of a tensor that are all compared: statistics and biases are no larger."""

_SAMPLES: Final = 32
"""Words of a larger one that are compared: whoever writes to all of it writes to one of them."""


class Held:
    def __init__(self, torch: Any, tensors: Sequence[Any]) -> None:
        self._seen = [_seen(one) for one in tensors]
        self._parameters = [at for at, one in enumerate(tensors) if isinstance(one, torch.nn.Parameter)]
        samples = [_sample(torch, one.detach()) for one in tensors]
        self._samples = [(one, one.tobytes()) for one in samples]

    def are_as_before(self, tensors: Sequence[Any]) -> bool:
        """Whether these, in the same order, are what was given. Elements of a large tensor that no sample holds may
        differ."""
        return [_seen(one) for one in tensors] == self._seen and all(
            sample.tobytes() == bits for sample, bits in self._samples
        )

    def are_of_another_model(self, tensors: Sequence[Any]) -> bool:
        """Whether each parameter is another tensor than it was; a model that replaces some is the same model."""
        return bool(self._parameters) and all(id(tensors[at]) != self._seen[at][0] for at in self._parameters)


def are_apart(written: Sequence[Any], tensors: Sequence[Any]) -> bool:
    """Whether each of ``written`` shares memory with no other of ``tensors``, among which they are."""
    places = {id(one): _place(one) for one in tensors}
    return not any(
        id(one) != other and start < places[id(one)][1] and places[id(one)][0] < end
        for one in written
        for other, (start, end) in places.items()
    )


def _place(tensor: Any) -> tuple[int, int]:
    """Where its memory begins and ends."""
    start = tensor.data_ptr()
    return start, start + _length(tensor)


def _length(tensor: Any) -> int:
    """Bytes from its first element to its last."""
    extents = zip(tensor.shape, tensor.stride(), strict=True)
    elements = 1 + sum((extent - 1) * stride for extent, stride in extents) if tensor.numel() else 0
    return int(elements * tensor.itemsize)


def _seen(held: Any) -> tuple[int, int, int]:
    """Another one where another tensor, or other memory, took its place, or it was written to."""
    return id(held), held.data_ptr(), 0 if held.is_inference() else held._version


def _sample(torch: Any, tensor: Any) -> np.ndarray[Any, Any]:
    """A view of some of its memory."""
    size = _length(tensor)
    start = tensor.storage_offset() * tensor.itemsize
    memory: np.ndarray[Any, Any] = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()
    own = memory[start : start + size]
    if size <= _SMALL:
        return own
    words = np.lib.stride_tricks.as_strided(own, (_SAMPLES, 8), ((size - 8) // (_SAMPLES - 1), 1), writeable=False)
    return words
