"""CUPTI's records, read from bytes that lie as NVIDIA's own headers say."""

from __future__ import annotations

import shutil
import struct
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from agentgen import jit
from agentgen.sandbox.guest.instruments import Seen
from agentgen.sandbox.guest.kernels import Launch, read

FIELDS = (
    "registersPerThread", "start", "end", "gridX", "gridZ", "blockX", "blockZ", "staticSharedMemory",
    "dynamicSharedMemory", "localMemoryPerThread", "name",
)  # fmt: skip
SOURCE = """#include <stddef.h>
#include <stdint.h>
#include <cupti_activity.h>
extern "C" void offsets(int64_t* out) {
"""


def test_the_fields_lie_where_the_header_has_them() -> None:
    found = find_spec("triton")
    folder = Path(found.origin or "").parent / "backends/nvidia/include" if found else Path()
    if not (folder / "cupti_activity.h").exists() or shutil.which("g++") is None:
        pytest.skip("no header of CUPTI here, or no g++")
    name = max(("CUpti_ActivityKernel9", "CUpti_ActivityKernel10"), key=lambda n: n in header(folder))
    body = "".join(f"  out[{i}] = offsetof({name}, {field});\n" for i, field in enumerate(FIELDS))
    out = torch.zeros(len(FIELDS), dtype=torch.int64)
    jit.cpp(f"{SOURCE}{body}}}\n", options=(f"-I{folder}",)).offsets(out)
    assert out.tolist() == [6, 16, 24, 52, 60, 64, 72, 76, 80, 84, 104]


def header(folder: Path) -> str:
    return (folder / "cupti_activity.h").read_text()


def test_a_record_is_read() -> None:
    head = bytearray(112)
    struct.pack_into("=IxxH", head, 0, 10, 128)
    struct.pack_into("=QQ", head, 16, 1000, 5000)
    struct.pack_into("=6i2iI", head, 52, 66, 4, 2, 32, 8, 1, 1024, 49152, 16)
    assert read(bytes(head), "conv") == Launch(
        "conv", 1000, 5000, registers=128, blocks=528, threads=256, shared_bytes=50176, local_bytes=16
    )


def test_of_several_launches_the_longest_says_how_it_was_launched() -> None:
    short, long = Launch("k", 0, 1000, blocks=1, threads=32), Launch("k", 2000, 5000, blocks=9, threads=64)
    claims = Seen(launches=[short, long, Launch("other", 6000, 7000)]).claims()
    assert [(k["name"], k["count"], k["us"], k["blocks"]) for k in claims["kernels"]] == [
        ("k", 2, 4.0, 9),
        ("other", 1, 1.0, 0),
    ]
    assert claims["busy_us"] == 5.0
