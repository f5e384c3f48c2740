"""What a file says of its tensors is judged once for each type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tvm import relax

from eqsat_layout.readers.guards import tensor_sizes
from eqsat_layout.readers.modules import FileError, read_module, write_module


def test_a_tuple_whose_parts_are_all_used_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it was for each part that is used: ONNX's Split of 1000 results took 15 s to read."""
    parts = 100
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((parts, 2), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            split = builder.emit(relax.op.split(x, parts, 0))
            sums = [relax.op.negative(builder.emit(relax.TupleGetItem(split, place))) for place in range(parts)]
            result = builder.emit_output(relax.op.concat([builder.emit(one) for one in sums], 0))
        builder.emit_func_output(result)
    judged: list[Any] = []
    monkeypatch.setattr(tensor_sizes, "check_extents", lambda *given: judged.append(given))
    tensor_sizes.check_tensors(builder.get())
    assert parts < len(judged) < 10 * parts


def nested(lines: int, first: str = "(x,)", of: str = "a{before}") -> str:
    """A text of tuples, one in the other unless ``of`` says what is in each."""
    head = '@R.function\ndef main(x: R.Tensor((2,), "float32")):\n'
    tuples = "".join(f"    a{line} = ({of.format(before=line - 1)},)\n" for line in range(1, lines))
    return f"{head}    a0 = {first}\n{tuples}    return x\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (nested(200), "tuples in one another, more than 64 deep"),
        (nested(20, f"({'x, ' * 400})", "a0"), "more than 4096 parts in all"),
    ],
    ids=["deep", "wide"],
)
def test_tuples_of_tuples_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str) -> None:
    """They were looked through as trees: the time to read a text grew with the square of its lines."""
    path = tmp_path / "tuples.py"
    path.write_text(text)
    monkeypatch.setattr(tensor_sizes, "MOST_IN_ALL", 1 << 12)
    with pytest.raises(FileError, match=says):
        read_module(path)


def test_tuples_of_tuples_that_a_program_may_have_are_read(tmp_path: Path) -> None:
    text, graph = tmp_path / "tuples.py", tmp_path / "tuples.json"
    text.write_text(nested(40))
    write_module(read_module(text), graph)
    assert read_module(graph)["main"].params[0].name == "x"


def test_tuples_in_one_another_are_bounded_in_graphs_too() -> None:
    ty: Any = relax.TensorType((2,), "float32")
    for _ in range(100):
        ty = relax.TupleType([ty])
    x = relax.Var("x", ty)
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(x)
    with pytest.raises(tensor_sizes.UnsafeTensorError, match="more than 64 deep"):
        tensor_sizes.check_tensors(builder.get())
