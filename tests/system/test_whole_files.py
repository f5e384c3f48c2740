"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eqsat_layout.system.whole_files import whole_file


def stopped(path: Path) -> None:
    with whole_file(path, is_text=True) as file:
        file.write("half")
        raise KeyboardInterrupt


def test_who_stops_in_between_leaves_what_was_there(tmp_path: Path) -> None:
    """Ctrl-C while a plan or an array was written left half of it."""
    path = tmp_path / "plan ü.txt"
    for before in (None, "before"):
        if before:
            path.write_text(before)
        with pytest.raises(KeyboardInterrupt):
            stopped(path)
        assert (path.read_text() if path.exists() else None) == before
        assert len(list(tmp_path.iterdir())) == bool(before)


def test_a_file_keeps_its_mode_and_its_links(tmp_path: Path) -> None:
    path, link = tmp_path / "own.txt", tmp_path / "link.txt"
    path.write_text("before")
    path.chmod(0o640)
    link.symlink_to(path)
    with whole_file(link, is_text=True) as file:
        file.write("after")
    assert link.is_symlink()
    assert path.read_text() == "after"
    assert path.stat().st_mode & 0o777 == 0o640
    with whole_file(tmp_path / "new.bin", is_text=False) as file:
        file.write(b"\0")
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "new.bin").stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_device_is_written_to_and_stays() -> None:
    with whole_file(Path("/dev/null"), is_text=False) as file:
        file.write(b"anything")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(OSError, match="No space left"), whole_file(Path("/dev/full"), is_text=True) as file:
        file.write("anything")
