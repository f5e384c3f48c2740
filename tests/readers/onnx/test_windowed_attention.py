"""ONNX's own ``Attention``, over caches of given lengths and windows, beside ONNX's own evaluator."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat_layout

onnx = pytest.importorskip("onnx")
RNG = np.random.default_rng(0)


def test_attention_over_caches_of_given_lengths_and_windows() -> None:
    """Without ``num_heads``, "which is read of it", nodes with lengths were refused; so were windows, and causal ones
    that go on from a past. The second sequence has a query that sees no key: zeros."""
    text = """<ir_version: 12, opset_import: ["" : 24]> g
        (float[2,4,3,8] q, float[2,2,6,8] k, float[2,2,6,8] v, int64[2] lengths, float[2,4,3,6] more,
         float[2,2,2,8] past)
        => (float[2,4,3,8] a, float[2,4,3,8] b, float[2,4,3,8] c, float[2,2,8,8] d, float[2,2,8,8] e) {
            a = Attention<is_causal = 1>(q, k, v, more, , , lengths)
            b = Attention<softcap = 2.0>(q, k, v, , , , lengths)
            c, d, e = Attention<is_causal = 1, scale = 0.5>(q, k, v, , past, past)
        }"""
    model = onnx.parser.parse_model(text)
    shapes = {"q": (2, 4, 3, 8), "k": (2, 2, 6, 8), "v": (2, 2, 6, 8), "more": (2, 4, 3, 6), "past": (2, 2, 2, 8)}
    feed = {name: RNG.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    feed["lengths"] = np.array([5, 2])
    wanted = pytest.importorskip("onnx.reference").ReferenceEvaluator(model).run(None, feed)
    for got, other in zip(eqsat_layout.Session(model).run(None, feed), wanted, strict=True):
        np.testing.assert_allclose(got, other, rtol=1e-4, atol=1e-5)
    assert not wanted[0][1, :, 0].any()
