"""A library that is not as it was written is refused before the system opens it, and ends the process."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from programs import program
from tvm.relax import op as R

import eqsat_layout
from bench.soundness.damage import of_bytes, of_segments
from eqsat_layout.errors import EqsatError
from eqsat_layout.session import runtime
from eqsat_layout.session.checksum import damage, seal
from eqsat_layout.session.library import opened_program


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "net.so"
    eqsat_layout.Session(program(lambda _, x: R.nn.relu(x), (4, 4))).save(path)
    return path


def test_a_library_that_is_cut_off_is_refused(tmp_path: Path, library: Path) -> None:
    data = library.read_bytes()
    for size in (8, 100, 5000, len(data) // 2, len(data) - 1):
        cut = tmp_path / f"cut{size}.so"
        cut.write_bytes(data[:size])
        with pytest.raises(EqsatError, match=f"cut{size}.so: can't be loaded: it is cut off"):
            opened_program(cut)


def test_a_damaged_library_never_reaches_the_system(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments in another order, that lie in one another, or that are protected elsewhere ended the process."""
    monkeypatch.setattr(runtime, "opened_library", lambda path: pytest.fail(f"{path} is opened"))
    data, rng = library.read_bytes(), random.Random(0)
    path = tmp_path / "damaged.so"
    for number in range(400):
        damaged = (of_bytes if number % 2 else of_segments)(data, rng)
        if damaged == data:
            continue
        path.write_bytes(damaged)
        with pytest.raises(EqsatError, match=r"damaged\.so: (can't be loaded: it is|the file is empty)"):
            opened_program(path)


def test_a_checksum_is_of_all_bytes(tmp_path: Path) -> None:
    path = tmp_path / "sealed"
    contents = bytes(range(256)) * 9000  # more than is read at once
    path.write_bytes(contents)
    seal(path)
    whole = path.read_bytes()
    assert whole.startswith(contents)
    assert damage(path) is None
    for at in (0, 1 << 20, len(contents) - 1, *range(len(contents), len(whole))):
        changed = bytearray(whole)
        changed[at] ^= 4
        path.write_bytes(changed)
        assert damage(path)
    path.write_bytes(whole[:1000] + whole[1001:])
    assert damage(path) == "it is damaged"


def test_a_library_for_another_processor_says_so(tmp_path: Path, library: Path) -> None:
    """The system says of such a file that there is none."""
    data = bytearray(library.read_bytes())
    data[18:20] = (0xF7).to_bytes(2, "little")  # Linux BPF, which no machine is
    other = tmp_path / "other.so"
    other.write_bytes(data)
    seal(other)
    with pytest.raises(EqsatError, match=r"other\.so: can't be loaded: it is for processors with ELF's number 247"):
        opened_program(other)


@pytest.mark.parametrize(("content", "said"), [(b"", "the file is empty"), (b"\x7fELFxxxx", "can't be loaded: ")])
def test_what_is_no_library_is_said_without_names_of_other_files(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "junk.so"
    path.write_bytes(content)
    with pytest.raises(EqsatError, match=rf"^{path}: {said}[^/:]*$"):
        eqsat_layout.Session(path)


def test_a_library_that_is_open_is_not_loaded_again(tmp_path: Path) -> None:
    """TVM's loader gave it TVM's memory back while kernels held ours, which damaged heaps."""
    library = tmp_path / "net.so"
    eqsat_layout.Session(program(lambda _, x: R.nn.relu(x), (4, 4))).save(library)
    (first, _), (again, _) = opened_program(library), opened_program(library)
    assert again.same_as(first)
    other = tmp_path / "other.so"
    other.write_bytes(library.read_bytes())
    assert not opened_program(other)[0].same_as(first)
