"""What frontends say goes to the log, also beside an error and from several threads."""

from __future__ import annotations

import logging
import sys
import threading
import warnings

import pytest

from eqsat_layout.readers.quiet import talk_to_log


def test_what_is_said_before_an_error_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "eqsat_layout")

    def fail() -> None:
        with talk_to_log():
            print("printed")
            warnings.warn("warned", stacklevel=1)
            raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        fail()
    assert {"printed", "warned"} <= {record.getMessage() for record in caplog.records}


def test_the_streams_of_the_process_come_back_in_whatever_order_threads_end() -> None:
    before = sys.stdout, sys.stderr
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with talk_to_log():
            inside.set()
            leave.wait(10)

    def second() -> None:
        inside.wait(10)
        with talk_to_log():
            pass

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    threads[1].join(0.2)  # waits for the first, or would be inside by now
    leave.set()
    for thread in threads:
        thread.join(10)
    assert (sys.stdout, sys.stderr) == before
