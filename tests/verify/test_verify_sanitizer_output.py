"""Reading what compute-sanitizer prints."""

from __future__ import annotations

import pytest
from sanitizer_texts import CLEAN, MISALIGNED, NO_SUMMARY, OUT_OF_BOUNDS, RACE, WARNED

from agentgen.verify.checks.sanitizer_output import Fault, Summary, read_summary


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CLEAN, Summary(0, 0, None)),
        (
            OUT_OF_BOUNDS,
            Summary(
                24,
                0,
                Fault(
                    "Invalid __global__ write of size 4 bytes",
                    "scale(const float *, float *, int)",
                    "candidate.cu:12",
                    "by thread (232,0,0) in block (3,0,0) Address 0x7c5838a00fa0 is out of bounds "
                    "and is 1 bytes after the nearest allocation at 0x7c5838a00000 of size 4,000 bytes",
                ),
            ),
        ),
        (
            MISALIGNED,
            Summary(
                1,
                0,
                Fault(
                    "Invalid __shared__ read of size 16 bytes",
                    "void fused<(bool)1, __half>(T2 *, int)",
                    "/data/kernels.cu:162",
                    "by thread (63,0,0) in block (506,0,0) Address 0x12c is misaligned",
                ),
            ),
        ),
        (
            RACE,
            Summary(
                1,
                0,
                Fault(
                    "Race between Write access and Read access",
                    "void reverse<(int)256>(float *)",
                    "candidate.cu:27 and candidate.cu:30",
                    "4194304 hazards",
                ),
            ),
        ),
        (WARNED, Summary(0, 1, None)),
        (NO_SUMMARY, Summary(None, 0, None)),
        ("", Summary(None, 0, None)),
        (
            "========= Invalid __global__ read of size 2 bytes\n=========     at softmax+0x4a0\n",
            Summary(None, 0, Fault("Invalid __global__ read of size 2 bytes", "softmax", "", "")),
        ),
        (
            "========= Error: Race reported between Write access at 0x68 in sgemm_NT\n"
            "=========     and Read access at 0x78 in sgemm_NT [20 hazards]\n"
            "========= RACECHECK SUMMARY: 20 hazards displayed (256 errors, 0 warnings)\n",
            Summary(256, 0, Fault("Race between Write access and Read access", "sgemm_NT", "", "20 hazards")),
        ),
    ],
    ids=["clean", "out of bounds", "misaligned", "race", "warned", "no summary", "nothing", "cut off", "no lines"],
)
def test_what_the_tool_printed(text: str, expected: Summary) -> None:
    assert read_summary(text) == expected
