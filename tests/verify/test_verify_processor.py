"""Shares of processor time, from samples that are made up; test_verify_native.py takes real ones."""

from __future__ import annotations

import random
import sys

import pytest
from verify_checks import copy_check, time_check

from agentgen.records.problem import OwnWork
from agentgen.verify.checks.elf import Symbols
from agentgen.verify.checks.native import NativeLibrary
from agentgen.verify.checks.processor import BORROWED_LIMIT, Shares, work

OWN_PATH = "/scratch/mine.so"
MINE = [NativeLibrary(OWN_PATH, Symbols(frozenset(), frozenset()))]
TORCH_CPU = "/site-packages/torch/lib/libtorch_cpu.so"


@pytest.mark.parametrize(
    ("borrowed", "moved", "passed"),
    [
        *((1000, 0.0, True), (1090, 0.0, None), (1091, 0.0, False)),
        *((1400, 0.005, True), (1504, 0.005, None), (1505, 0.005, False)),
        *((5000, 9.0, True), (5150, 9.0, None), (5151, 9.0, False)),
    ],
)
def test_the_limits_are_three_deviations_wide(borrowed: int, moved: float, passed: bool | None) -> None:
    check = time_check({OWN_PATH: 10_000 - borrowed, TORCH_CPU: borrowed}, MINE, moved)
    assert check.passed == passed
    assert f"{borrowed / 100:.0f}% of 10000 samples" in check.evidence


def test_chance_condemns_nobody_and_acquits_no_borrower() -> None:
    """Of 2,000 windows of 95 samples each: one whose true share is the limit, one that borrows a third."""

    def condemned(share: float) -> int:
        drawn = random.Random(0)
        counts = (sum(drawn.random() < share for _ in range(95)) for _ in range(2000))
        return sum(Shares(95, count, 95 - count, "").beyond(BORROWED_LIMIT) for count in counts)

    assert condemned(BORROWED_LIMIT) <= 20
    assert condemned(BORROWED_LIMIT / 2) == 0
    assert condemned(1 / 3) >= 1990


@pytest.mark.parametrize(
    ("total", "borrowed", "decided"),
    [(59, 0, False), (60, 0, True), (60, 6, True), (60, 7, False), (60, 13, True), (95, 12, False), (95, 19, True)],
)
def test_more_samples_are_taken_until_they_would_only_tell_the_same(total: int, borrowed: int, decided: bool) -> None:
    assert Shares(total, borrowed, 0, "").decided(BORROWED_LIMIT) is decided


def test_a_library_that_is_allowed_decides_nothing() -> None:
    assert time_check({TORCH_CPU: 100}, MINE, policy=OwnWork.LIBRARY).passed is None


@pytest.mark.parametrize(
    "name",
    [
        *("/usr/lib/x86_64-linux-gnu/libc.so.6", "/lib/libm-2.31.so", "/lib64/libmvec.so.1", "[vdso]"),
        "/lib64/ld-linux-x86-64.so.2",
        *(f"{sys.prefix}/torch/lib/libtorch_python.so", "/opt/torch/lib/libc10.so", "/usr/lib/libpython3.11.so.1.0"),
        *("/usr/bin/python3.11", "/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so"),
    ],
)
def test_some_files_are_nobody_s_work(name: str) -> None:
    assert time_check({OWN_PATH: 50, name: 50}, MINE).passed


@pytest.mark.parametrize(
    "name",
    [
        *("/x/libmkl_core.so.2", "/x/libopenblas.so.0", "/x/libdnnl.so", "/x/libsleef.so.3", "/x/libcblas.so"),
        *("/x/numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so", "/x/libcrypto.so"),
        *("/dev/zero", "[anonymous]", "[unmapped]"),
    ],
)
def test_what_is_not_known_is_not_the_candidate_s(name: str) -> None:
    assert time_check({OWN_PATH: 50, name: 50}, MINE).passed is False


@pytest.mark.parametrize(
    "name",
    ["/usr/lib/libgomp.so.1", f"{sys.prefix}/torch.libs/libgomp-a34b3233.so.1.0.0", "/opt/libomp.so"],
)
def test_threads_that_wait_hide_nothing(name: str) -> None:
    assert time_check({TORCH_CPU: 40, name: 1000}, MINE).passed is False
    assert time_check({TORCH_CPU: 20, name: 1000}, MINE).passed is None
    assert time_check({OWN_PATH: 40, name: 1000}, MINE).passed


@pytest.mark.parametrize("name", ["/x/libgomp.so.1", "/x/libc.so.6", "/memfd:libgomp.so.1", "/x/libc10.so"])
def test_a_name_alone_makes_nothing_of_the_system(name: str) -> None:
    """A candidate calls its files as it likes: as a waiting thread's or C's library, its work would be nobody's."""
    assert work({name: 40, "/usr/lib/libgomp.so.1": 1000}, 4).samples == 40
    assert time_check({OWN_PATH: 40, name: 40}, MINE).passed is False


def test_few_samples_decide_nothing() -> None:
    check = time_check({TORCH_CPU: 29}, MINE)
    assert check.passed is None
    assert check.evidence == "29 samples of processor time, decided from 30 on"
    assert time_check({TORCH_CPU: 30}, MINE).passed is False


C_LIBRARY = "/usr/lib/x86_64-linux-gnu/libc.so.6"


@pytest.mark.parametrize(
    ("due", "seen", "passed"),
    [(100.0, 90, True), (100.0, 29, True), (100.0, 28, False), (20.0, 1, True), (20.0, 0, False), (19.0, 0, None)],
)
def test_outputs_that_nobody_copies_are_missed(due: float, seen: int, passed: bool | None) -> None:
    check = copy_check({OWN_PATH: 100, C_LIBRARY: seen}, MINE, due)
    assert check.passed is passed
    assert copy_check(None, MINE, due).passed is None


def test_a_library_of_the_candidate_s_that_is_called_as_c_s_is_its_own() -> None:
    libraries = [NativeLibrary("/scratch/libc.so.6", MINE[0].symbols)]
    assert copy_check({"/scratch/libc.so.6": 100}, libraries, 100.0).passed is False
    assert copy_check({"/lib/libc-2.31.so": 100}, libraries, 100.0).passed
