"""The guest that is started ahead: taken once, and nothing but time is lost where it fails."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from agentgen.records.candidate import Candidate, Language
from agentgen.records.run import Isolation
from agentgen.sandbox.kin import children
from agentgen.sandbox.process import CACHE, ProcessSandbox
from agentgen.verify.architecture import architecture
from agentgen.verify.guests import Guests
from agentgen.verify.spare import Spare

CANDIDATE = Candidate(source="ModelNew = None", language=Language.CUDA)
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ProcessSandbox]:
    one = ProcessSandbox("cpu")
    one.wait_until_warm()
    yield one
    one.close()


def test_where_none_is_wanted_none_is_started(sandbox: ProcessSandbox) -> None:
    spare = Spare(sandbox, wanted=False)
    spare.begin()
    assert spare.take(None) is None


def test_a_sandbox_that_starts_none_is_no_failure_yet() -> None:
    broken = ProcessSandbox("cpu")
    broken.wait_until_warm()
    broken.close()
    spare = Spare(broken, wanted=True)
    spare.begin()
    assert spare.take(None) is None


def test_guests_of_one_candidate_share_a_folder_and_those_of_another_have_their_own(sandbox: ProcessSandbox) -> None:
    guests = Guests(sandbox, None, Isolation.JAIL)
    first = guests.first(CANDIDATE)
    second = guests.another()
    other = guests.first(CANDIDATE.model_copy(update={"source": "ModelNew = 1"}))
    assert first.guest.scratch == second.guest.scratch != other.guest.scratch
    for session in (first, second, other):
        session.close()


@pytest.mark.gpu
@on_gpu
def test_one_that_cannot_open_its_device_is_dropped() -> None:
    torch.zeros(1, device="cuda:0")
    away = ProcessSandbox("cuda:63", architecture("cuda:0"))
    spare = Spare(away, wanted=True)
    spare.begin()
    ahead = spare._session  # pyright: ignore[reportPrivateUsage]
    assert ahead
    spare.settle()
    assert not ahead.guest.scratch.exists(), "its guest is gone"
    assert spare.take(None) is None
    away.close()


@pytest.mark.gpu
@on_gpu
def test_it_is_the_next_candidates_first_guest_and_shares_its_folder_with_the_second() -> None:
    arch = architecture("cuda:0")
    torch.zeros(1, device="cuda:0")  # the judge's own context is there by then
    guests = Guests(ProcessSandbox("cuda:0", arch), arch, Isolation.JAIL)
    try:
        guests.spare.begin()
        guests.spare.settle()
        ahead = guests.spare._session  # pyright: ignore[reportPrivateUsage]
        assert ahead
        built = Path(tempfile.mkdtemp())  # where it lies on the same disk as the guests' folders
        (built / "found").touch()
        session = guests.first(CANDIDATE)
        assert session is ahead
        guests.spare.begin()
        taken = guests.spare.take(built)
        assert taken
        assert (taken[0].guest.scratch / CACHE / "found").exists()
        second = guests.another()
        assert second.guest.scratch == session.guest.scratch != taken[0].guest.scratch
        for one in (session, second, taken[0]):
            one.close()
    finally:
        guests.close()


def test_nothing_is_left(sandbox: ProcessSandbox) -> None:
    before = set(children(os.getpid()))
    guests = Guests(ProcessSandbox("cpu"), None, Isolation.JAIL)
    guests.first(CANDIDATE)
    guests.close()
    assert set(children(os.getpid())) <= before
