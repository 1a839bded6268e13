"""Switching off any one check lets a cheat through: none is there for show.

Some stand in for each other, and are switched off together: then the one named first is what the group is about.
Screens are exempt (they only come first), and so are checks that report and never refuse. Those that only a GPU has, or
that need compute-sanitizer, have attacks of their own in `tests/verify` (attacks_gpu, sanitizer).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from corpus import Bank, bank, corpus, verdict

from agentgen.scoring.cases import Verdict
from agentgen.verify import evaluation  # pyright: ignore[reportUnusedImport]  # noqa: F401  registers every check
from agentgen.verify.findings import CATALOGUE

ALONE = {
    "own outputs": "cpp/ring_of_outputs",
    "one element": "cpp/cache_by_rows_and_zeros",
    "new weights": "cpp/weights_shared_between_instances",
    "same answer": "cpp/counter_overflows",
    "strided inputs": "cpp/rows_without_gaps",
    "special values": "cpp/nan_becomes_a_number",
    "poisoned memory": "cpp/scratch_times_zero",
    "own work: dispatcher": "cpp/last_step_by_torch",
    "own work: native symbols": "cpp/last_step_by_blas",
    "own work: processor time": "cpp/blas_by_ctypes",
    "clocks agree": "cpp/patched_perf_counter",
    "every call counts": "cpp/memo_used_once",
    "stands still": "cpp/wakes_itself",
    "outputs are copied": "cpp/runner_replaced",
    "neighbouring shapes": "cpp/only_whole_vectors",
    "guard pages": "cpp/scratch_overrun",
}
"""Check -> a cheat that nothing else finds."""
TOGETHER = {
    # On an answer that is wrong everywhere, every look at an answer is a look at this one.
    ("values", "own outputs", "one element", "new weights"): "triton/inputs_in_bf16",
    ("inputs unchanged", "values while timed", "every output"): "cpp/input_reordered",
    ("values while timed", "every output"): "cpp/specialised_when_timed",
    # Of a window in four whole outputs are looked at: now and then at one that was left out.
    ("every output", "values while timed"): "cpp/skips_when_woken",
    # The time of other processes is sampled too, where the kernel samples at all.
    ("other processes", "own work: processor time"): "cpp/child_borrows_library",
    ("instruments agree", "own work: processor time"): "cpp/honest_where_a_caller_records",
}
ATTEMPTS = 5
GUESTS_OWN = {"global state"}
"""Looked at in the guest, in every window: `test_what_the_guest_looks_at_itself`."""
REPORTS = {"baseline undisturbed", "second measurement", "throttling"}
"""They refuse nothing on a CPU."""
ELSEWHERE = {"own kernels", "work ends with the window", "memory checker", "race checker"}
"""On a GPU, or by compute-sanitizer."""
REDUNDANT = {
    # A time below the floor of the memory can only come from work that is done elsewhere or before.
    "byte floor": ("other processes", "own work: processor time", "clocks agree", "values while timed"),
    # A hundred draws more of what `values` draws fifteen of.
    "100 draws": ("values",),
}
"""Nets below others: what they find, those find first, in all cheats that there are."""


@pytest.fixture(scope="module")
def judges() -> Iterator[Bank]:
    with bank("cpu") as judges:
        yield judges


def test_no_check_is_forgotten() -> None:
    covered = {"screen", *ALONE, *(group[0] for group in TOGETHER)}
    assert covered | GUESTS_OWN | REPORTS | ELSEWHERE | set(REDUNDANT) == set(CATALOGUE)


CASES = {str(case.name).removeprefix("cheats/"): case for case in corpus("cpu", honest=False)}
"""Those of one problem together, so that its judge opens once."""
MUTANTS = {cheat: (name,) for name, cheat in ALONE.items()} | {cheat: group for group, cheat in TOGETHER.items()}


@pytest.mark.slow
@pytest.mark.parametrize("cheat", sorted(MUTANTS, key=list(CASES).index))
def test_without_it_a_cheat_gets_through(judges: Bank, cheat: str) -> None:
    case, off = CASES[cheat], MUTANTS[cheat]
    # Other checks may refuse it for a busy machine's sake: let through once is let through.
    refused: list[tuple[str, ...]] = []
    while len(refused) < ATTEMPTS:
        trial = verdict(judges.of(case), case, off=["screen", *off])
        if trial.accepted:
            return
        refused.append(trial.reasons)
    pytest.fail(f"refused all the same: {refused}")
    if others := off[1:]:
        alone = verdict(judges.of(case), case, off=["screen", *others])
        assert not alone.accepted
        assert alone.caused_by(Verdict(accepted=False, by=off[:1]))


BLIND = """
from contextlib import nullcontext

from agentgen.sandbox.guest import serve

serve.unchanged = lambda *_: nullcontext()
"""


@pytest.mark.slow
def test_what_the_guest_looks_at_itself(tmp_path: Path) -> None:
    """`sitecustomize` is run by every Python that starts: here by the zygote."""
    (tmp_path / "sitecustomize.py").write_text(BLIND)
    case = CASES["cpp/mode_of_rounding_left"]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        with bank("cpu") as blind:
            assert verdict(blind.of(case), case, off=["screen", *GUESTS_OWN]).accepted
