"""Here the last-level cache is a small one: measuring fills twice as much memory as it holds, and there are machines
with 480 MiB, where that took gigabytes and most of the time."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from eqsat_layout.targets.cpu import host


@pytest.fixture(scope="module", autouse=True)
def _small_cache() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "last_cache_bytes", lambda: 4 << 20)
        yield


@pytest.fixture(autouse=True)
def _interrupts() -> Iterator[None]:
    """A shell starts what it runs in the background with interrupts ignored, and programs inherit that."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
