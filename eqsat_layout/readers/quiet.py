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


@contextlib.contextmanager
def talk_to_log() -> Iterator[None]:
    """Prints, warnings and torch's own log of this thread go to the log under ``eqsat_layout``."""
    said = io.StringIO()
    with (
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        _without_log_of("torch"),
    ):
        warnings.simplefilter("always")
        try:
            yield
        finally:
            told = (*said.getvalue().splitlines(), *(str(warning.message) for warning in warned))
    for text in told:
        _logger.debug("%s", text)


@contextlib.contextmanager
def _without_log_of(package: str) -> Iterator[None]:
    """The handlers of its modules, which hold the process's own standard error, leave out what this thread logs."""
    own = threading.get_ident()

    def is_of_others(record: logging.LogRecord) -> bool:
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
