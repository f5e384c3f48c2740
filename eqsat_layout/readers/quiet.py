"""What frontends and exporters say beside their results and errors.

In: work that prints, warns and logs. Out: the same in the debugging log, as the error that is raised says it again.
"""

from __future__ import annotations

import contextlib
import io
import logging
import threading
import warnings
from collections.abc import Iterator

_logger = logging.getLogger("eqsat_layout")


_TURN = threading.RLock()
"""Prints and warnings are those of the process: of two threads, one waits for the other's to be its own again."""


@contextlib.contextmanager
def talk_to_log() -> Iterator[list[str]]:
    """What is printed and warned of, and what torch logs in this thread, goes to the log under ``eqsat_layout``.

    One thread at a time; others' prints go there meanwhile. Gives what torch has logged so far.
    """
    said = io.StringIO()
    logged: list[str] = []
    warned: list[warnings.WarningMessage] = []
    try:
        with (
            _TURN,
            warnings.catch_warnings(record=True) as warned,
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
            _without_log_of("torch", logged),
        ):
            warnings.simplefilter("always")
            yield logged
    finally:
        for text in (*said.getvalue().splitlines(), *logged, *(str(warning.message) for warning in warned)):
            _logger.debug("%s", text)


@contextlib.contextmanager
def _without_log_of(package: str, logged: list[str]) -> Iterator[None]:
    """The handlers of its modules, which hold the process's own standard error, leave out what this thread logs, which
    is added to ``logged`` once."""
    own = threading.get_ident()
    last: list[logging.LogRecord] = []

    def is_of_others(record: logging.LogRecord) -> bool:
        if record.thread == own and record not in last:
            last[:] = [record]
            error = record.exc_info[1] if record.exc_info else None
            logged.append(record.getMessage() if error is None else f"{record.getMessage()}: {error}")
        return record.thread != own

    loggers = [
        logging.getLogger(name)
        for name in list(logging.root.manager.loggerDict)
        if f"{name}.".startswith(f"{package}.")
    ]
    handlers = [handler for logger in loggers for handler in logger.handlers]
    for handler in handlers:
        handler.addFilter(is_of_others)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_of_others)
