"""Repeats are found, whole and only where there are some."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eqsat_layout.report.html.folds import Fold, folds_of
from eqsat_layout.report.html.picture import Picture, PictureEdge, PictureNode


def chain(ops: str, kernels: list[int] | None = None) -> Picture:
    """Each op reads the one before it."""
    numbers = kernels or [-1] * len(ops)
    nodes = [PictureNode("op", name, "", "NCHW", "1", 0.0, kernel=k) for name, k in zip(ops, numbers, strict=True)]
    edges = [PictureEdge(i, i + 1, 4) for i in range(len(ops) - 1)]
    return Picture("p", tuple(nodes), tuple(edges))


def test_repeats_are_found() -> None:
    assert folds_of(chain("xabcabcabcy")) == [Fold(1, 3, 3)]
    assert folds_of(chain("xabcdabcdefghefgh")) == [Fold(1, 4, 2), Fold(9, 4, 2)]


def test_little_is_not_folded() -> None:
    assert folds_of(chain("abab")) == []
    assert folds_of(chain("abcdefgh")) == []


def test_a_fold_does_not_cut_a_kernel() -> None:
    assert folds_of(chain("xabcabcabcabc", [9, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3])) == [Fold(1, 3, 4)]
    assert folds_of(chain("xabcabcabcabc", [9, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4])) == [Fold(2, 3, 3)]


def test_sources_at_another_distance_are_another_op() -> None:
    plain = chain("abcdabcd")
    assert folds_of(plain) == []  # the first op has no source
    longer = chain("xabcdabcd")
    assert folds_of(longer) == [Fold(1, 4, 2)]
    skewed = Picture("p", longer.nodes, (*longer.edges, PictureEdge(0, 7, 4)))
    assert folds_of(skewed) == []


def test_what_all_times_read_does_not_keep_them_apart() -> None:
    """BERT's layers read one mask, each from another distance: its page was 29 000 pixels tall."""
    plain = chain("mabcdabcdabcd")
    masked = Picture("p", plain.nodes, (*plain.edges, *(PictureEdge(0, i, 4) for i in (3, 7, 11))))
    assert folds_of(masked) == [Fold(1, 4, 3)]
    other = Picture("p", plain.nodes, (*plain.edges, *(PictureEdge(source, i, 4) for source, i in ((0, 3), (2, 7)))))
    assert folds_of(other) == []


@given(st.text("abc", max_size=60))
def test_folds_are_what_they_say(ops: str) -> None:
    end = 0
    for fold in folds_of(chain(ops)):
        assert fold.first >= end
        assert fold.count >= 2
        end = fold.first + fold.period * fold.count
        assert ops[fold.first : end] == ops[fold.first : fold.first + fold.period] * fold.count
    assert end <= len(ops)
