"""What the simulator does not know is refused by its name and line, never passed over."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from eqsat_layout.errors import InputError, TargetError
from eqsat_layout.soundness.cuda import KernelFault, Simulator, SourceError, build
from eqsat_layout.system.store import LIMIT_VARIABLE


def kernel(body: str) -> str:
    return f'extern "C" __global__ void k(float* out) {{\n{body}\n}}\n'


UNKNOWN = {
    'asm volatile("wgmma.fence.aligned;");': "line 2: .*'wgmma.fence.aligned'",
    '\nasm volatile("mbarrier.inval.shared.b64 [%0];" :: "r"(0));': "line 3: .*'mbarrier.inval.shared.b64'",
    'asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%0];" '
    ':: "r"(0), "l"(out));': "line 2: .*'cp.async.bulk.shared::cluster",
    'asm volatile("cp.async.bulk.commit_group;");': "line 2: .*'cp.async.bulk.commit_group'",
    'asm volatile("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {}, {}, {}, {};");': "line 2: .*m8n8k4",
    'asm volatile("bar.sync 1, 64;");': "line 2: .*'bar.sync'",
    'asm volatile("mul.hi.u32 %0, %0, %0;" : "+f"(out[0]));': "line 2: .*'mul.hi.u32'",
    'asm volatile("cvt.rz.f16.f32 %0, %0;" : "+f"(out[0]));': "line 2: .*'cvt.rz.f16.f32'",
    'asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(out[0]) : "r"(0));': "line 2: .*'ld.shared::cluster.f32'",
    'asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], 4, %2;" :: "r"(0), "l"(out), "l"(0l));': (
        "line 2: .*cache_hint"
    ),
    'asm volatile("add.f32 %0, %0;" : "+f"(out[0]));': "line 2: .*'add.f32'",
    'asm volatile("mov.u32 %0, unheard;" : "=f"(out[0]));': "line 2: .*'unheard'",
    'asm volatile("L1: bra L1;");': "line 2: .*L1",
    "out[0] = __unheard_of(1.0f);": "line 2: .*__unheard_of",
    "nvcuda::wmma::fill_fragment(out, 0);": "line 2: .*nvcuda",
}


@pytest.mark.parametrize("body", UNKNOWN)
def test_unknown_words_are_refused_by_name_and_line(body: str) -> None:
    with pytest.raises(SourceError, match=UNKNOWN[body]):
        Simulator(kernel(body))


def test_a_text_without_kernels_is_refused() -> None:
    with pytest.raises(SourceError, match="no kernel"):
        Simulator("int f() { return 1; }")


def test_assembly_in_comments_and_macros_is_no_assembly() -> None:
    Simulator(
        '#define __asm__ asm\n// asm volatile("wgmma;");\n/* asm("wgmma;"); */' + kernel('const char* s = "asm(";')
    )


def test_an_empty_statement_does_nothing() -> None:
    Simulator(kernel('asm volatile("" ::: "memory");'))


@pytest.fixture(scope="module")
def simple() -> Simulator:
    return Simulator(
        'extern "C" __global__ void __launch_bounds__(32) '
        "scaled(float* __restrict__ out, const float* x, int n, float by) {\n"
        "  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);\n  if (i < n) out[i] = x[i] * by;\n}\n"
    )


def test_numbers_and_arrays_that_are_the_same(simple: Simulator) -> None:
    x = np.arange(40, dtype="float32")
    simple.launch("scaled", [x, x, 33, 2.0], (2,), (32,))
    assert x.tolist() == [*range(0, 66, 2), *range(33, 40)]


@pytest.mark.parametrize(
    ("name", "arguments", "block", "message"),
    [
        ("scale", 4, 32, "did you mean 'scaled'"),
        ("scaled", 3, 32, "takes 4 arguments, not 3"),
        ("scaled", 4, 64, "a block of 64 threads, of at most 32"),
        ("scaled", 4, 0, r"a block of \(0,\)"),
    ],
)
def test_launches_that_do_not_fit(simple: Simulator, name: str, arguments: int, block: int, message: str) -> None:
    x = np.zeros(32, "float32")
    with pytest.raises(InputError, match=message):
        simple.launch(name, [x, x, 32, 2.0][:arguments], (1,), (block,))


@pytest.mark.parametrize("array", [np.zeros(32, "float64"), np.zeros((8, 8), "float32").T[1:], [1.0]])
def test_arrays_that_do_not_fit(simple: Simulator, array: object) -> None:
    with pytest.raises(InputError, match=r"kernel scaled, argument 0 \(float\*\)"):
        simple.launch("scaled", [array, np.zeros(32, "float32"), 32, 2.0], (1,), (32,))


def test_of_an_array_without_elements_nothing_may_be_read(simple: Simulator) -> None:
    x = np.zeros(32, "float32")
    simple.launch("scaled", [x[:0], x, 0, 2.0], (1,), (32,))  # begins where x does
    with pytest.raises(KernelFault, match="of 0 bytes"):
        simple.launch("scaled", [x[:0], x, 32, 2.0], (1,), (32,))


def test_without_a_compiler_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    build.compiler.cache_clear()
    try:
        with pytest.raises(TargetError, match="needs a C\\+\\+ compiler"):
            Simulator(kernel("out[0] = 1;"))
    finally:
        build.compiler.cache_clear()


def test_a_text_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = kernel("out[0] = 17;")
    Simulator(text)
    monkeypatch.setattr(build, "_compile", lambda *_: pytest.fail("compiled again"))
    out = np.zeros(1, "float32")
    Simulator(text).launch("k", [out], (1,), (1,))
    assert out[0] == 17


def test_new_texts_are_compiled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting the compiler took as long as a kernel."""
    calls: list[tuple[str, ...]] = []
    compile_ = build._compile
    Simulator(kernel("out[0] = 18;"))
    monkeypatch.setattr(build, "_compile", lambda *command: (calls.append(command), compile_(*command)))
    head = "#include <cstdint>\n__device__ int8_t helper() {{ return {}; }}\n"
    first, second = (head.format(i) + kernel("out[0] = helper();").replace(" k(", f" k{i}(") for i in (1, 2))
    out = np.zeros(1, "float32")
    for i, simulator in enumerate(Simulator.of_each([first, second]), 1):
        simulator.launch(f"k{i}", [out], (1,), (1,))
        assert out[0] == i
    assert len(calls) == 2
    with pytest.raises(KernelFault, match="line 2"):
        Simulator.of_each([first + "\n", kernel("out[1] = 0;")])[1].launch("k", [out], (1,), (1,))
    with pytest.raises(SourceError, match=r"line 2: .*unheard"):
        Simulator.of_each([first + "\n\n", kernel("out[0] = unheard;")])


def test_libraries_hold_a_few_texts_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text keeps the library that it shares: the memory of all grew as the square of their number."""
    made: list[int] = []

    def library(_: str, texts: list[str]) -> bytes:
        made.append(len(texts))
        return b""

    monkeypatch.setenv(LIMIT_VARIABLE, "0")
    monkeypatch.setattr(build, "_library", library)
    build.built([f"text {i}" for i in range(40)])
    assert (sum(made), max(made)) == (40, 16)
