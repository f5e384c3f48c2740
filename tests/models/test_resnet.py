"""ResNet-50 as a Relax module: its shape, size, determinism and range."""

from __future__ import annotations

import math

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from eqsat_layout.models import resnet50
from eqsat_layout.targets.lowering import lower

SMALL = {"image": 32, "width": 8, "blocks": (1, 2, 1, 1), "classes": 10}


def parameters(mod, ops):
    """Elements of the constants that are second arguments of ``ops``."""
    total = 0

    def note(expr):
        nonlocal total
        called = isinstance(expr, tvm.ir.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name in ops
        if called and isinstance(expr.args[1], tvm.ir.GenericConst):
            total += math.prod(int(e) for e in expr.args[1].ty.shape)

    relax.analysis.post_order_visit(mod["main"], note)
    return total


def run(mod, x):
    return relax.VirtualMachine(lower(mod), tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()


def test_full_size_has_the_parameters_of_resnet50():
    mod = resnet50()
    relax.analysis.well_formed(mod)
    main = mod["main"]
    assert [p.name for p in main.params] == ["x"]
    assert [int(e) for e in main.params[0].ty.shape] == [1, 3, 224, 224]
    assert [int(e) for e in main.ret_ty.shape] == [1, 1000]
    assert len(main.body.blocks) == 1
    weights = parameters(mod, {"relax.nn.conv2d", "relax.matmul"})
    assert weights == 23_454_912 + 2048 * 1000
    assert parameters(mod, {"relax.add"}) == 26_560 + 1000


def test_names_tell_the_place_in_the_net():
    text = resnet50(**SMALL)["main"].script(show_meta=False)
    for name in ("stem:", "stage1_block0_conv1:", "stage2_block1_conv3:", "stage4_block0_shortcut:", "fc:"):
        assert name in text


def test_the_stride_is_in_the_3x3():
    binding = next(b for b in resnet50(**SMALL)["main"].body.blocks[0].bindings if b.var.name == "stage2_block0_conv2")
    assert [int(s) for s in binding.value.attrs.strides] == [2, 2]


def test_logits_are_finite_and_in_a_sane_range():
    x = np.random.default_rng(1).standard_normal((2, 3, 32, 32)).astype("float32")
    logits = run(resnet50(batch=2, **SMALL), x)
    assert logits.shape == (2, 10)
    assert np.isfinite(logits).all()
    assert 0.1 < logits.std() < 10
    assert not np.allclose(logits[0], logits[1])


def test_the_seed_decides_the_weights():
    same, again, other = (resnet50(seed=s, **SMALL) for s in (0, 0, 1))
    assert tvm_ffi.structural_equal(same, again)
    assert not tvm_ffi.structural_equal(same, other)
