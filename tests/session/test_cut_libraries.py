"""A library that is not whole is refused before the system opens it, and ends the process."""

from __future__ import annotations

import struct
import sysconfig
from pathlib import Path

import pytest
from programs import program
from tvm.relax import op as R
from tvm_ffi import core

import eqsat_layout
from eqsat_layout.errors import EqsatError
from eqsat_layout.session.library import _check_file, opened


def test_a_library_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    whole = Path(core.__file__)
    assert whole.suffix == ".so", sysconfig.get_platform()
    _check_file(whole)
    data = whole.read_bytes()
    for size in (100, 5000, len(data) // 2):
        cut = tmp_path / f"cut{size}.so"
        cut.write_bytes(data[:size])
        with pytest.raises(EqsatError, match=f"cut{size}.so: can't be loaded: it is cut off"):
            opened(cut)


@pytest.mark.parametrize("start", [1 << 60, (1 << 64) - 1])
def test_a_library_whose_segments_are_told_far_behind_its_end_is_cut_off(tmp_path: Path, start: int) -> None:
    """It was an OSError, "Invalid argument"."""
    data = bytearray(Path(core.__file__).read_bytes())
    data[32:40] = start.to_bytes(8, "little")
    far = tmp_path / "far.so"
    far.write_bytes(data)
    with pytest.raises(EqsatError, match=r"far\.so: can't be loaded: it is cut off"):
        opened(far)


def test_a_library_for_another_processor_says_so(tmp_path: Path) -> None:
    """The system says of such a file that there is none."""
    data = bytearray(Path(core.__file__).read_bytes())
    data[18:20] = (0xF7).to_bytes(2, "little")  # Linux BPF, which no machine is
    other = tmp_path / "other.so"
    other.write_bytes(data)
    with pytest.raises(EqsatError, match=r"other\.so: can't be loaded: it is for processors with ELF's number 247"):
        opened(other)


@pytest.mark.parametrize(("content", "said"), [(b"", "the file is empty"), (b"\x7fELFxxxx", "can't be loaded: ")])
def test_what_is_no_library_is_said_without_names_of_other_files(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "junk.so"
    path.write_bytes(content)
    with pytest.raises(EqsatError, match=rf"^{path}: {said}[^/:]*$"):
        eqsat_layout.Session(path)


@pytest.mark.parametrize(("kind", "field"), [(2, 16), (1, 40)])
def test_a_library_whose_segments_are_elsewhere_is_damaged(tmp_path: Path, kind: int, field: int) -> None:
    """What is to be linked lay outside of memory, or memory was shorter than the file: the process ended."""
    data = bytearray(Path(core.__file__).read_bytes())
    (start,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    for at in range(start, start + 56 * count, 56):
        if struct.unpack_from("<I", data, at) == (kind,):
            struct.pack_into("<Q", data, at + field, 0 if kind == 1 else 0x7FFF_DEAD_B000)
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(data)
    with pytest.raises(EqsatError, match=r"damaged\.so: can't be loaded: it is damaged"):
        opened(damaged)


def test_a_library_that_is_open_is_not_loaded_again(tmp_path: Path) -> None:
    """TVM's loader gave it TVM's memory back while kernels held ours, which damaged heaps."""
    library = tmp_path / "net.so"
    eqsat_layout.Session(program(lambda _, x: R.nn.relu(x), (4, 4))).save(library)
    (first, _), (again, _) = opened(library), opened(library)
    assert again.same_as(first)
    other = tmp_path / "other.so"
    other.write_bytes(library.read_bytes())
    assert not opened(other)[0].same_as(first)
