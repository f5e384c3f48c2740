"""Ops of ONNX on floats of 16 bits, beside float32; and ops that were refused in part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat_layout

onnx = pytest.importorskip("onnx")
RNG = np.random.default_rng(0)
HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '


def model_of(text: str, **constants: Any) -> Any:
    """The model of a text in which these constants have no values."""
    model = onnx.parser.parse_model(HEAD + text)
    del model.graph.value_info[:]
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in constants.items())
    return model


def wanted(model: Any, feed: dict[str, Any]) -> Any:
    return pytest.importorskip("onnx.reference").ReferenceEvaluator(model).run(None, feed)


def test_halves_where_converters_know_float32_only() -> None:
    """GridSample gave float32; LRN and MeanVarianceNormalization, and bytes of bfloat16, were refused."""
    text = """(T[1,2,5,7] x, T[1,3,4,2] at, S[3,4] w) =>
        (T[1,2,3,4] a, T[1,2,5,7] b, T[1,2,5,7] c, T[1,2,5,7] d, uint8[3,4] e) <S[4] scale> {
          a = GridSample(x, at)
          b = LRN<size = 3, alpha = 0.5>(x)
          c = Softsign(x)
          d = MeanVarianceNormalization(x)
          e = QuantizeLinear<axis = 1>(w, scale)
        }"""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x, w = RNG.standard_normal((1, 2, 5, 7)), RNG.uniform(0, 100, (3, 4))
    feed = {"x": x.astype("float16"), "at": RNG.uniform(-1, 1, (1, 3, 4, 2)).astype("float16"), "w": w.astype(bfloat16)}
    scale = np.array([0.5, 1, 2, 4], "float32")
    plain = model_of(text.replace("T[", "float[").replace("S[", "float["), scale=scale)
    runtime = pytest.importorskip("onnxruntime").InferenceSession(
        plain.SerializeToString()
    )  # ONNX's own LRN is another
    others = runtime.run(None, {name: one.astype("float32") for name, one in feed.items()})
    model = model_of(text.replace("T[", "float16[").replace("S[", "bfloat16["), scale=scale.astype(bfloat16))
    for got, other in zip(eqsat_layout.Session(model).run(None, feed), others, strict=True):
        assert got.dtype == (other.dtype if other.dtype == "uint8" else "float16")
        np.testing.assert_allclose(got, other, rtol=2e-3, atol=2e-3)


def test_moved_windows_bytes_by_blocks_and_unpooling_to_a_shape() -> None:
    text = """(float[1,4,6,7] x, float[1,36,6,7] move, float[1,18,6,7] seen, float[4,6] w) =>
        (float[1,6,6,7] a, int8[4,6] b, float[1,1,5,5] c)
        <float[6,2,3,3] filters, float[6] bias = {0, 1, 2, 3, 4, 5}, float[4,3] scale, int8[4,3] zero,
         float[1,1,2,2] up = {1, 2, 3, 4}, int64[1,1,2,2] at = {5, 7, 13, 15}, int64[4] size = {1, 1, 5, 5}> {
          a = DeformConv<pads = [1,1,1,1], group = 2, offset_group = 2>(x, filters, move, bias, seen)
          b = QuantizeLinear<axis = 1, block_size = 2>(w, scale, zero)
          c = MaxUnpool<kernel_shape = [2,2], strides = [2,2]>(up, at, size)
        }"""
    constants = {
        "filters": RNG.standard_normal((6, 2, 3, 3)).astype("float32"),
        "scale": RNG.uniform(0.1, 1, (4, 3)).astype("float32"),
        "zero": RNG.integers(-5, 5, (4, 3)).astype("int8"),
    }
    model = model_of(text, **constants)
    feed = {
        "x": RNG.standard_normal((1, 4, 6, 7)).astype("float32"),
        "move": RNG.standard_normal((1, 36, 6, 7)).astype("float32") * 2,
        "seen": RNG.uniform(0, 1, (1, 18, 6, 7)).astype("float32"),
        "w": RNG.standard_normal((4, 6)).astype("float32"),
    }
    for got, other in zip(eqsat_layout.Session(model).run(None, feed), wanted(model, feed), strict=True):
        assert got.dtype == other.dtype
        np.testing.assert_allclose(got, other, rtol=1e-4, atol=1e-4)
