"""How numbers are written."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from report_records import MACHINE

from agentgen.records.machine import Machine
from agentgen.report import figures


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (None, "–"),
        (0.4, "0.400 µs"),
        (12.345, "12.35 µs"),
        (9.99996, "10.00 µs"),
        (812.44, "812.4 µs"),
        (999.96, "1.000 ms"),
        (6214.4, "6.214 ms"),
        (999_960, "1.000 s"),
        (1.2e7, "12.00 s"),
    ],
)
def test_times_have_four_digits_and_the_unit_that_suits(microseconds: float | None, text: str) -> None:
    assert figures.time(microseconds) == text


def test_errors_tell_none_from_zero() -> None:
    assert [figures.error(value) for value in (None, 0.0, 2e-6)] == ["–", "0", "2.00e-06"]


def test_a_machine_is_named_with_the_versions_that_move_a_time() -> None:
    gpu = Machine(
        device_type="cuda",
        device="NVIDIA H200",
        cores=132,
        memory_bytes=1,
        last_level_cache_bytes=1,
        compute_capability="9.0",
        driver="580.95",
        cuda="13.0",
        torch="2.13.0",
        triton="3.7.1",
        python="3.11.7",
    )
    assert figures.machine(MACHINE) == "AMD EPYC 9554, 2 cores, torch 2.13.0, Python 3.11.7"
    assert figures.machine(gpu) == (
        "NVIDIA H200, compute capability 9.0, driver 580.95, CUDA 13.0, torch 2.13.0, triton 3.7.1, Python 3.11.7"
    )


def test_dates_are_of_utc_wherever_they_were_written_down() -> None:
    when = datetime(2026, 11, 23, 9, 30, tzinfo=timezone(timedelta(hours=13)))
    assert (figures.day(when), figures.minute(when)) == ("2026-11-22", "2026-11-22 20:30 UTC")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0 s"),
        (59.99, "59 s"),
        (60, "1:00 min"),
        (3599.9, "59:59 min"),
        (3600, "1:00:00 h"),
        (90_061, "25:01:01 h"),
    ],
)
def test_clocks(seconds: float, shown: str) -> None:
    assert figures.clock(seconds) == shown
