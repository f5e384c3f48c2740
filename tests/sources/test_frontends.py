"""Models of onnx and torch, from memory and from files, against what their own packages make of them."""

from __future__ import annotations

import dataclasses
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import program
from sources.exported import Exported, X
from tvm import relax

import eqsat_layout
from eqsat_layout.errors import EqsatError
from eqsat_layout.sources.source import source_of


def onnx_model(batch: Any = "batch") -> Any:
    onnx = pytest.importorskip("onnx")
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    w = onnx.numpy_helper.from_array(np.arange(12, dtype="float32").reshape(4, 3), "w")
    nodes = [helper.make_node("MatMul", ["in.1", "w"], ["h"]), helper.make_node("Relu", ["h"], ["out.1"])]
    given = [helper.make_tensor_value_info("in.1", real, [batch, 4])]
    made = [helper.make_tensor_value_info(name, real, [batch, 3]) for name in ("out.1", "h")]
    graph = helper.make_graph(nodes, "g", given, made, [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


H = X @ np.arange(12, dtype="float32").reshape(4, 3)


def test_an_onnx_model_keeps_its_names(tmp_path: Path) -> None:
    model = onnx_model()
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    for source in (model, tmp_path / "model.onnx"):
        for shapes in (None, {"in.1": (2, 4)}):
            session = eqsat_layout.Session(source, shapes=shapes)
            assert [spec.name for spec in session.inputs] == ["in.1"]
            assert session.inputs[0].shape == ("batch" if shapes is None else 2, 4)
            assert [spec.name for spec in session.outputs] == ["out.1", "h"]
            (h, y) = session.run(["h", "out.1"], {"in.1": X})
            np.testing.assert_allclose(h, H, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(y, np.maximum(H, 0), rtol=1e-5, atol=1e-5)


def test_a_library_keeps_the_names_of_its_model(tmp_path: Path) -> None:
    eqsat_layout.Session(onnx_model(2)).save(tmp_path / "model.so")
    session = eqsat_layout.Session(tmp_path / "model.so")
    np.testing.assert_allclose(session.run(["h"], {"in.1": X})[0], H, rtol=1e-5, atol=1e-5)


def test_a_file_that_was_compiled_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading, with torch behind onnxscript, took four seconds of each start. Weights may lie beside the model."""
    onnx = pytest.importorskip("onnx")
    from eqsat_layout.session import compiled

    monkeypatch.setenv("EQSAT_LAYOUT_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "model.onnx"
    onnx.save(onnx_model(2), path, save_as_external_data=True, location="weights", size_threshold=0)
    first = eqsat_layout.Session(path).run(["h"], {"in.1": X})[0]
    for thread in threading.enumerate():  # that keeps the program
        if thread is not threading.current_thread():
            thread.join(20)
    with monkeypatch.context() as again:
        again.setattr(compiled, "source_of", lambda *_: pytest.fail("it is read"))
        np.testing.assert_array_equal(eqsat_layout.Session(path).run(["h"], {"in.1": X})[0], first)
    np.ones((4, 3), "float32").tofile(tmp_path / "weights")
    np.testing.assert_allclose(eqsat_layout.Session(path).run(["h"], {"in.1": X})[0], X @ np.ones((4, 3)), rtol=1e-5)


def test_a_model_that_onnx_can_not_have_meant_is_refused(tmp_path: Path) -> None:
    model = onnx_model()
    model.graph.node[0].op_type = "NoSuchOp"
    with pytest.raises(EqsatError, match=r"the ONNX model: .*NoSuchOp"):
        eqsat_layout.plan(model)
    (tmp_path / "text.onnx").write_text("hello world")
    with pytest.raises(EqsatError, match=r"text\.onnx: is no ONNX model: "):
        eqsat_layout.plan(tmp_path / "text.onnx")
    with pytest.raises(EqsatError, match="a ModelProto needs none"):
        eqsat_layout.plan(onnx_model(), inputs=(1,))


def torch_model() -> Any:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.GELU()).eval()


def test_an_nn_module_and_its_export_are_sources(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model, x = torch_model(), torch.from_numpy(X)
    wanted = model(x).detach().numpy()
    exported = torch.export.export(model, (x,))
    torch.export.save(exported, tmp_path / "model.pt2")
    for session in (
        eqsat_layout.Session(model, inputs=(x,)),
        eqsat_layout.Session(model, inputs=x),
        eqsat_layout.Session(exported),
        eqsat_layout.Session(tmp_path / "model.pt2"),
    ):
        np.testing.assert_allclose(session.run(None, {"input": x})[0], wanted, rtol=1e-4, atol=1e-5)
    assert eqsat_layout.optimize(model, inputs={"input": x})["main"].params[0].name == "input"


def test_an_nn_module_says_what_it_lacks() -> None:
    model = torch_model()
    with pytest.raises(EqsatError, match=r"Sequential is an nn\.Module: give example inputs"):
        eqsat_layout.Session(model)
    with pytest.raises(EqsatError, match="Sequential is in training mode"):
        eqsat_layout.Session(model.train(), inputs=(X,))
    with pytest.raises(EqsatError, match="Sequential can't be exported"):
        eqsat_layout.Session(model.eval(), inputs=("x",))
    takes = r"inputs: Sequential\.forward takes \(input\), got \(x=float32 \(2, 4\)\): missing"
    with pytest.raises(EqsatError, match=takes):
        eqsat_layout.Session(model, inputs={"x": X})
    with pytest.raises(EqsatError, match="given twice"):
        eqsat_layout.Session(model, X, inputs=X)


def test_examples_are_given_as_people_have_them() -> None:
    """In a list, as arrays, of a model that torch compiles: each was an error of torch's or a name that nobody gave."""
    torch = pytest.importorskip("torch")
    model, x = torch_model(), torch.from_numpy(X)
    for given in ([x], X, {"input": X}, X[:, ::-1], X.astype(">f4")):
        assert source_of(model, given).inputs == ("input",)
    assert source_of(torch.compile(model), x).inputs == ("input",)
    with pytest.raises(EqsatError, match="inputs: an array of <U1 is no tensor"):
        source_of(model, np.array(["x"]))


def test_results_in_a_dataclass_are_its_fields() -> None:
    torch = pytest.importorskip("torch")

    @dataclasses.dataclass
    class Both:
        first: Any
        second: Any = None

    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return {"deep": [Both(x + 1, Both(x + 2))]}

    model = Model().eval()
    np.testing.assert_array_equal(eqsat_layout.Session(model, X).run(None, {"x": X}), [X + 1, X + 2])
    assert isinstance(model(X)["deep"][0], Both)


def test_what_torch_says_beside_an_error_is_kept_from_the_user(capfd: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")

    class Branch(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    with pytest.raises(EqsatError, match=r"can't be exported: .*test_frontends\.py.* in forward"):
        source_of(Branch().eval(), X)
    with pytest.raises(EqsatError, match=r"\[2, 4\] X \[5, 3\]"):
        source_of(torch.nn.Linear(5, 3).eval(), X)
    assert capfd.readouterr() == ("", "")


def test_a_module_that_gives_no_tensor_is_refused() -> None:
    torch = pytest.importorskip("torch")

    class Nothing(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return ()

    with pytest.raises(EqsatError, match="it gives no tensor"):
        source_of(Nothing().eval(), X)


def test_nothing_of_onnx_or_torch_is_imported_for_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("onnx", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
    mod = program(lambda b, x: relax.op.nn.relu(x), (4, 6))
    assert source_of(mod).inputs == (str(mod["main"].params[0].name),)


def test_inputs_of_equal_names_are_told_apart() -> None:
    params = [relax.Var(name, relax.TensorType((2,), "float32")) for name in ("x", "x", "x_1")]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(params[2])
    assert len(set(source_of(builder.get()).inputs)) == 3


def test_the_only_public_function_is_the_model() -> None:
    builder = relax.BlockBuilder()
    for name in ("first", "second"):
        x = relax.Var("x", relax.TensorType((2,), "float32"))
        with builder.function(name, [x]):
            builder.emit_func_output(x)
    both = builder.get()
    with pytest.raises(EqsatError, match=r"which function is the model.* first, second"):
        source_of(both)
    del both["second"]
    assert source_of(both).entry == "first"


INDEXED = {
    "selected": lambda torch, x, i: (x[-1], x[:, -2]),
    "a list": lambda torch, x, i: x[:, [0, -1]],
    "numbers that are given": lambda torch, x, i: (x[i], x[:, i], x[i, i]),
    "written to": lambda torch, x, i: x.index_put((i, i), torch.zeros(3)),
}


def test_rounded_divisions_of_torch() -> None:
    """The positions of DETR: floats that are divided by a whole number."""
    torch = pytest.importorskip("torch")

    class Halves(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return [torch.div(x, 2, rounding_mode=mode) for mode in ("floor", "trunc", None)]

    x = torch.from_numpy(X)
    session = eqsat_layout.Session(torch.export.export(Halves(), (x,)))
    for got, wanted in zip(session.run(None, {session.inputs[0].name: X}), Halves()(x), strict=True):
        np.testing.assert_array_equal(got, wanted.numpy())


@pytest.mark.parametrize("what", INDEXED)
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_indices_of_torch_count_from_the_end(what: str, is_dynamic: bool) -> None:
    """``y[-1]`` of a GRU read what lay before ``y``: TVM's frontend gives torch's indices to ``take`` as they are."""
    torch = pytest.importorskip("torch")

    class Indexing(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, i: Any) -> Any:
            return INDEXED[what](torch, x, i)

    x, i = torch.arange(12.0).reshape(3, 4) - 5, torch.tensor([1, -1, -3])
    sizes = ({0: torch.export.Dim("n", min=3)}, None) if is_dynamic else None
    session = eqsat_layout.Session(torch.export.export(Indexing(), (x, i), dynamic_shapes=sizes))
    wanted = Indexing()(x, i)
    got = session.run(None, {spec.name: one for spec, one in zip(session.inputs, (x, i), strict=True)})
    for one, expected in zip(got, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        np.testing.assert_array_equal(one, expected.numpy())


def test_plans_speak_of_nodes_by_their_own_names() -> None:
    pytest.importorskip("onnxscript")
    bound = source_of(Exported.onnx(2)).module["main"].body.blocks[0].bindings
    assert {"/net/Reshape", "/net/Pad", "/net/Relu"} <= {binding.var.name for binding in bound}


def test_resizes_and_samples_of_torch() -> None:
    """Nearest elements, scales that give no whole number and sampled grids came out with other numbers and shapes."""
    torch = pytest.importorskip("torch")
    functions = torch.nn.functional

    class Resized(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, grid: Any) -> Any:
            resized = [functions.interpolate(x, scale_factor=0.5), functions.interpolate(x, size=(4, 10))]
            resized.append(functions.interpolate(x, scale_factor=(1.5, 2), mode="bilinear"))
            return (*resized, functions.grid_sample(x, grid, align_corners=True))

    x, grid = torch.randn(1, 2, 7, 5), torch.rand(1, 3, 4, 2) * 2 - 1
    results = eqsat_layout.Session(Resized().eval(), inputs=(x, grid)).run(None, {"x": x, "grid": grid})
    for result, wanted in zip(results, Resized()(x, grid), strict=True):
        np.testing.assert_allclose(result, wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_plans_speak_of_torch_modules_by_their_paths() -> None:
    torch = pytest.importorskip("torch")
    exported = torch.export.export(torch_model(), (torch.from_numpy(X),))
    names = {binding.var.name for binding in source_of(exported).module["main"].body.blocks[0].bindings}
    assert {"0", "1", "2"} & names


def test_positions_up_to_a_size_are_as_many() -> None:
    """``Range`` up to the length of a sentence had a length of its own, and a mask of it fitted nothing."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    helper = onnx.helper
    numbers = {"zero": 0, "one": 1, "minus": [-1]}
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], start=1, end=2),
        helper.make_node("Squeeze", ["shape"], ["length"]),
        helper.make_node("Range", ["zero", "length", "one"], ["positions"]),
        helper.make_node("Cast", ["positions"], ["numbers"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Add", ["x", "numbers"], ["sum"]),
        helper.make_node("Reshape", ["sum", "minus"], ["y"]),
    ]
    constants = [onnx.numpy_helper.from_array(np.array(n, "int64"), name) for name, n in numbers.items()]
    given = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", "length"])]
    made = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None])]
    graph = helper.make_graph(nodes, "g", given, made, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    (y,) = eqsat_layout.Session(model).run(None, {"x": X})
    np.testing.assert_array_equal(y, (X + np.arange(4, dtype="float32")).ravel())


def test_sums_of_booleans_are_integers_as_in_torch() -> None:
    """GPT-2 numbers its tokens by a cumulative sum of a mask, which TVM's frontend took for booleans."""
    torch = pytest.importorskip("torch")

    class Counting(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return (x > 0).cumsum(-1), (x > 0).sum(-1), x.sum(0, dtype=torch.float64)

    model, x = Counting(), torch.from_numpy(X)
    session = eqsat_layout.Session(torch.export.export(model, (x,)))
    for got, expected in zip(session.run(None, {session.inputs[0].name: X}), model(x), strict=True):
        assert str(got.dtype) == str(expected.dtype).removeprefix("torch.")
        np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5)


def test_a_program_that_writes_to_its_buffers_is_refused() -> None:
    """It was taken, and what it wrote was lost: a counter stayed at one."""
    torch = pytest.importorskip("torch")

    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.count += 1
            return x + self.count

    with pytest.raises(EqsatError, match="it writes to count, which would be lost"):
        eqsat_layout.Session(torch.export.export(Counter(), (torch.zeros(1),)))


def test_extremes_of_infinities_of_torch() -> None:
    """They were the lowest finite number."""
    torch = pytest.importorskip("torch")

    class Extremes(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.amax(1), x.amin((0, 1), keepdim=True), x.max(1).values, x.min()

    for number in (-np.inf, np.inf):
        x = torch.full((2, 5), number)
        session = eqsat_layout.Session(torch.export.export(Extremes(), (x,)))
        for got, wanted in zip(session.run(None, {session.inputs[0].name: x}), Extremes()(x), strict=True):
            np.testing.assert_array_equal(got, wanted.numpy())
