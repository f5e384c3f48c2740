"""Which tensors images hold, and the profiles of devices."""

from __future__ import annotations

import pytest
import tvm
from tvm.target import Target

from eqsat_layout.errors import TargetError
from eqsat_layout.maps import GLOBAL, Format, index_map_from_names
from eqsat_layout.targets.opencl.images import NHWC, TEXTURE, WEIGHT, ImageMemory
from eqsat_layout.targets.opencl.profiles import PROFILES
from eqsat_layout.targets.opencl.target import OpenClTarget
from eqsat_layout.targets.registry import kinds, target

SCOPES = (TEXTURE, NHWC, WEIGHT)


def opencl(**config: object) -> OpenClTarget:
    found = target({"kind": "opencl", **config})
    assert isinstance(found, OpenClTarget)
    return found


def image(scope: str, **config: object) -> ImageMemory:
    memory = opencl(device="adreno", **config).memories[scope]
    assert isinstance(memory, ImageMemory)
    return memory


def held(scope: str, shape: tuple[int, ...], dtype: str = "float32", **config: object) -> bool:
    return image(scope, **config).placed(Format.row_major(shape), dtype) is not None


def blocked(names: str, layout: str, shape: tuple[int, ...]) -> Format:
    index_map = index_map_from_names(names, layout, shape)
    assert index_map is not None
    return Format.make(index_map)


def test_the_registry_finds_it() -> None:
    assert "opencl" in kinds()
    assert opencl().profile.name == "buffer_only"
    assert opencl(device="adreno").profile.name == "adreno6xx"
    assert opencl(device="mali").profile.name == "mali"
    assert opencl(device="adreno", profile="adreno5xx").profile.name == "adreno5xx"
    assert opencl(device="toaster").profile.name == "buffer_only"
    assert target(tvm.target.Target("qcom/adreno-opencl-texture")).kind == "opencl"


def test_a_profile_that_is_none_is_named() -> None:
    with pytest.raises(TargetError, match="no OpenCL profile 'adreno9'"):
        opencl(profile="adreno9")


def test_the_profile_stays_when_kernels_are_to_be_exact() -> None:
    exact = opencl(profile="powervr").with_approx(False)
    assert isinstance(exact, OpenClTarget)
    assert exact.profile.name == "powervr"


@pytest.mark.parametrize("name", [p.name for p in PROFILES.values() if p.has_images])
def test_every_profile_with_images_has_all_scopes(name: str) -> None:
    assert set(opencl(profile=name).memories) == {GLOBAL, *SCOPES}


def test_a_device_without_images_has_buffers_only() -> None:
    assert set(opencl(profile="buffer_only").memories) == {GLOBAL}


def test_extents_are_those_of_tvms_lowering() -> None:
    """As TVM 0.27 lowers (2,3,4,5,4): (w,h,d) = (5,4,6), (60,2,1), (20,3,2)."""
    shape = (2, 3, 4, 5, 4)
    found = {scope: tuple(reversed(image(scope).extents(shape))) for scope in SCOPES}
    assert found == {TEXTURE: (5, 4, 6), WEIGHT: (60, 2, 1), NHWC: (20, 3, 2)}


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("rank", [3, 4, 5, 6])
def test_all_elements_of_a_tensor_are_in_its_image(scope: str, rank: int) -> None:
    shape = (2, 3, 5, 7, 2, 4)[6 - rank :]
    layers, height, width = image(scope).extents(shape)
    assert isinstance(layers, int)
    assert isinstance(height, int)
    assert isinstance(width, int)
    assert layers * height * width * 4 == Format.row_major(shape).elements()
    assert held(scope, shape)


@pytest.mark.parametrize("scope", SCOPES)
def test_fewer_than_three_axes_are_no_image(scope: str) -> None:
    assert not held(scope, (64, 4))
    reason = image(scope).why_not(Format.row_major((64, 4)), "float32")
    assert reason is not None
    assert "2 physical axes" in reason


@pytest.mark.parametrize(
    ("shape", "dtype", "is_held"),
    [
        ((1, 8, 4, 4, 4), "float32", True),
        ((1, 8, 4, 4, 4), "float16", True),
        ((1, 8, 4, 4, 8), "float16", False),
        ((1, 8, 4, 4, 8), "float32", False),
        ((1, 8, 4, 4, 2), "float32", False),
        ((1, 8, 4, 4, 1), "float32", False),
        ((1, 8, 4, 4, 4), "int32", False),
        ((1, 8, 4, 4, 8), "int8", False),
    ],
)
def test_a_texel_is_four_floats(shape: tuple[int, ...], dtype: str, is_held: bool) -> None:
    assert all(held(scope, shape, dtype) == is_held for scope in SCOPES)


@pytest.mark.parametrize(
    ("scope", "largest"),
    [
        (TEXTURE, (2, 1024, 16384, 16384, 4)),
        (NHWC, (2048, 16384, 2, 8192, 4)),
        (WEIGHT, (16384, 2, 2, 4096, 4)),
    ],
)
def test_limits_are_inclusive_and_kept(scope: str, largest: tuple[int, ...]) -> None:
    assert held(scope, largest)
    for axis in range(4):
        shape = tuple(e + (i == axis) for i, e in enumerate(largest))
        assert not held(scope, shape), shape


def test_attributes_of_the_target_lower_the_limits() -> None:
    assert held(TEXTURE, (1, 9, 9, 4))
    assert not held(TEXTURE, (1, 9, 9, 4), texture_spatial_limit=8)
    assert held(TEXTURE, (9, 8, 8, 4), texture_spatial_limit=8)
    assert not held(TEXTURE, (9, 8, 8, 4), texture_spatial_limit=8, texture_depth_limit=8)


def test_symbolic_extents_are_no_image() -> None:
    assert image(TEXTURE).placed(Format.row_major(("n", 8, 8, 4)), "float32") is None


def test_arrays_of_one_layer_are_not_used_where_they_read_as_zeros() -> None:
    shape = (1, 1, 8, 8, 4)
    assert held(TEXTURE, shape)
    assert not held(TEXTURE, shape, profile="adreno5xx")
    assert held(TEXTURE, (1, 2, 8, 8, 4), profile="adreno5xx")
    assert not held(WEIGHT, (2, 2, 8, 8, 4), profile="adreno5xx")
    reason = image(WEIGHT, profile="adreno5xx").why_not(
        Format.make(Format.row_major((2, 8, 8, 4)).index_map, scope=WEIGHT, separators=(1, 3)), "float32"
    )
    assert reason is not None
    assert "one layer as zeros" in reason


def test_each_layout_suits_the_scope_whose_rows_and_columns_are_its_own() -> None:
    shape = (1, 64, 14, 14)
    layouts = {
        blocked("NCHW", "NCHW4c", shape): TEXTURE,
        blocked("NCHW", "NHWC4c", shape): NHWC,
    }
    for fmt, natural in layouts.items():
        suiting = []
        for scope in SCOPES:
            placed = image(scope).placed(fmt, "float32")
            assert placed is not None
            suiting += [scope] if image(scope).suits(placed) else []
        assert suiting == [natural]
    weight = blocked("OIHW", "OIHW4o", (64, 32, 3, 3))
    placed = image(WEIGHT).placed(weight, "float32")
    assert placed is not None
    assert image(WEIGHT).suits(placed)
    assert not image(NHWC).suits(placed)


def test_types_of_targets_are_those_that_tvm_reads() -> None:
    config = {"kind": "opencl", "device": "adreno", "profile": "adreno5xx"}
    found = target(config)
    assert isinstance(found.tvm, Target)
    assert config["profile"] == "adreno5xx", "what the user gives is not changed"
