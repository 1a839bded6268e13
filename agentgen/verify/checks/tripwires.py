"""Is the time true? What the judge's clocks saw besides the time itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from agentgen.records.trial import Outcome
from agentgen.sandbox.kin import Kin, Stopped
from agentgen.verify.checks.processor import Work
from agentgen.verify.findings import NotGated, Rejected, check

CLOCKS_AGREE = 0.10
"""Honest event pairs lay 0.2% to 5.4% below the gate over 20 kernels of 85-690 us (docs/border.md)."""
COMMAND_US = 1.5e3
"""On a CPU the judge's figure has the command and its answer in it: 0.1 ms, 1 ms on two busy cores."""
TAIL_S = 2e-3
"""The guest's answer takes 0.2-0.5 ms; what runs on for longer than this and a tenth of the window is work."""
QUIET_RATIO, QUIET_US = 0.10, 1.0
SHARED_RATIO = 0.5
ROUND_RATIO, ROUND_US = 0.25, 2.0
MOST_PAIRS = 2 / 3
OTHERS_RATIO, OTHERS_S = 0.10, 0.02
"""The kernel counts processor time in ticks of 10 ms."""
STOPPED_RATIO, STOPPED_S = 0.02, 0.03
"""Of honest guests 0.00 s were seen in 29 pauses; a tick may be counted when one begins."""
BUSY_RATIO, BUSY_US = 0.25, 2.0
"""Power-limited kernels drift by 20% within a second (345-425 us seen), so instruments agree no better than this."""
WALL_RATIO, WALL_US = 2.0, 500.0
"""On a CPU the instruments run beside the kernel, on two cores that others use too: an honest layernorm took 15.6 ms a
call under them and 10.4 ms when timed, both with the copy of its output."""


def held_up(guest_us: Sequence[float], judge_us: Sequence[float], around_us: float = 0.0) -> bool:
    """Whether the guest's figures are so much below the judge's in all windows that it set its clock back, or that
    something held them up before its clock ran: asked for a second race, which tells the two apart.

    On an H200 three kernels in a row had windows of up to three times their length, for ten seconds in which six
    programs started on the GPU beside it; their event pairs had the usual time, and so had the baselines.
    """
    ratios = [guest / judge for guest, judge in zip(guest_us, judge_us, strict=True)]
    # On a busy machine the judge is woken late, its figure is the longer one, and honest kernels were 13% to 43% below
    # it in the median of 11 windows. A clock that was set back is so in every window.
    return max(ratios) - 1 < -CLOCKS_AGREE - around_us / median(judge_us)


@check("clocks agree")
def clocks_agree(
    guest_us: Sequence[float], judge_us: Sequence[float], around_us: float = 0.0, *, again: bool = False
) -> str:
    """Catches a guest whose own figure for the windows (an event pair on a GPU) is not the judge's: patched events, a
    window that started before the judge's clock or ended after it.

    Does not catch: a guest that forges its figure to fit. It is compared, never used. A guest can have itself raced
    twice by a figure that is too low, and chooses no more than which of two true races counts.

    Args:
        guest_us: The guest's figures for the windows.
        judge_us: The judge's.
        around_us: By how much more the judge's may be beside the 10%: for what its clock sees round the window.
        again: Whether this is a second race, after one that was held up.
    """
    ratios = [guest / judge for guest, judge in zip(guest_us, judge_us, strict=True)]
    off, most = median(ratios) - 1, max(ratios) - 1
    races = " of the second of two races" if again else ""
    if off > CLOCKS_AGREE or held_up(guest_us, judge_us, around_us):
        raise Rejected(
            Outcome.CHEATED,
            f"the guest's clock differs from the judge's by {off:+.1%} over {len(ratios)} windows{races}, "
            f"{most:+.1%} at most",
        )
    after = "; the race before was held up" if again else ""
    return f"the guest's own clock differs by {off:+.1%} over {len(ratios)} windows; 10% is allowed{after}"


def ran_over(tails_s: Sequence[float], windows_s: Sequence[float]) -> bool:
    """Whether the device was busy for longer after the marks than answers take, in the median: asked for a second race.

    On an H200 an honest affine was so for 5.4 ms in windows of 3 ms, five at a neighbouring shape, while processes
    began and ended on the GPU beside it.
    """
    return median(tails_s) > TAIL_S + 0.1 * median(windows_s)


@check("work ends with the window")
def ends_with_window(tails_s: Sequence[float], windows_s: Sequence[float], *, again: bool = False) -> str | NotGated:
    """Catches work on other streams or threads of the GPU that goes on when the last call is marked as done: after the
    mark the guest waits for its whole device, and the judge times that.

    Does not catch: a guest that answers without waiting. What it left undone is missing in the outputs, and what it
    leaves running slows the baseline ("baseline undisturbed").

    Args:
        tails_s: From the mark until the answer, of each window.
        windows_s: How long the windows were.
        again: Whether this is a second race, after one that was held up.
    """
    if not any(tails_s):
        return NotGated("not measured on a CPU: there the clock stops at the answer, and the guest is stopped after it")
    tail, window = 1e3 * median(tails_s), 1e3 * median(windows_s)
    if ran_over(tails_s, windows_s):
        races = ", in the second of two races" if again else ""
        raise Rejected(
            Outcome.CHEATED,
            f"the device was busy for {tail:.2f} ms after the mark of a window of {window:.2f} ms{races}",
        )
    after = "; the race before was held up" if again else ""
    return f"idle {tail:.2f} ms after the mark, the answer included{after}"


def disturbed(raced_us: Mapping[str, Sequence[float]], quiet_us: Mapping[str, float]) -> str | None:
    """Returns a baseline that was slower beside the guest than it may be, if any: asked for a second race.

    On an H200 eager took 1893 us beside an honest conv2d_relu_maxpool, and 1238 us before it, while windows on the GPU
    beside it were up to 13% and three times their length off.
    """
    slower = (name for name, us in raced_us.items() if median(us) > (1 + QUIET_RATIO) * quiet_us[name] + QUIET_US)
    return next(slower, None)


@check("baseline undisturbed")
def undisturbed(
    raced_us: Mapping[str, Sequence[float]], quiet_us: Mapping[str, float], *, shared: bool, again: bool = False
) -> str | NotGated:
    """Catches a guest that slows what it races: a kernel left running, a cache set aside, memory or power taken. Each
    baseline must be as fast beside the guest as before any guest existed.

    Does not catch: less than 10% and 1 us. Reported on a CPU (`shared`), which anybody may use.

    Args:
        raced_us: Of the windows of each baseline, beside the guest.
        quiet_us: Of each before.
        shared: Whether others use the device, too.
        again: Whether this is a second race, after one that was held up.
    """
    if not shared and (name := disturbed(raced_us, quiet_us)):
        races = ", in the second of two races" if again else ""
        raise Rejected(
            Outcome.CHEATED,
            f"{name} took {median(raced_us[name]):.1f} us beside this guest, {quiet_us[name]:.1f} us before it{races}",
        )
    worst = max(0.0, *(median(samples) / quiet_us[name] - 1 for name, samples in raced_us.items()))
    after = "; the race before was held up" if again else ""
    seen = f"at most {worst:.1%} slower beside the guest than before any existed{after}"
    return NotGated(f"reported: {seen}") if shared and worst > SHARED_RATIO else seen


@check("other processes")
def alone(before: Kin, after: Kin, timed_s: float) -> str:
    """Catches work done, or the baseline slowed, by processes that the candidate started: children that live while it
    is timed, in whatever session, and those that came and went, by their processor time.

    Does not catch: processes that end without being waited for by anybody in the guest's family.

    Args:
        before: What other processes the guest had before it was timed.
        after: What it has when its last window has ended.
        timed_s: Length of all windows together.
    """
    if living := before.living + after.living:
        raise Rejected(Outcome.CHEATED, f"processes of its own live while it is timed: {', '.join(living[:4])}")
    if after.unseen:
        raise Rejected(Outcome.CHEATED, "it ignores SIGCHLD: the time of its children would not be counted")
    gone_s = after.gone_s - before.gone_s
    if gone_s > OTHERS_RATIO * timed_s + OTHERS_S:
        raise Rejected(
            Outcome.CHEATED, f"processes that it started worked for {gone_s:.2f} s while {timed_s:.2f} s were timed"
        )
    return "no process but the guest's own"


@check("stands still")
def stands_still(stopped: Stopped) -> str | NotGated:
    """Catches a guest that works while it is stopped, where the baselines have the processors and where its inputs are
    rewritten: a timer that sends SIGCONT wakes it from within. By its processor time over all pauses, on a CPU.

    Does not catch: processes of its own ("other processes"), threads that work for less than 2% of the pauses.
    """
    if not stopped.seconds:
        return NotGated("it was never stopped")
    said = f"worked for {stopped.worked_s:.2f} s of the {stopped.seconds:.2f} s that it was stopped"
    if stopped.worked_s > STOPPED_RATIO * stopped.seconds + STOPPED_S:
        raise Rejected(Outcome.CHEATED, said)
    return said


@check("byte floor")
def above_floor(median_us: float, floor_us: float, torch_us: float) -> str | NotGated:
    """Catches times that no kernel can have: inputs and outputs beyond the last-level cache must be moved at least
    once, and nothing moves them faster than the memory.

    Does not catch: anything where all of it fits the cache; too few operations (algorithms differ in how many they do).
    Decides nothing where torch itself is below the floor: not all of the inputs need be read there (a gather).
    """
    if torch_us < floor_us:
        return NotGated(f"torch itself takes {torch_us:.2f} us, less than moving all inputs and outputs")
    if median_us < floor_us:
        raise Rejected(
            Outcome.CHEATED,
            f"{median_us:.2f} us a call, yet moving the inputs and outputs alone takes {floor_us:.2f} us",
        )
    return f"{median_us:.1f} us is above {floor_us:.1f} us"


def waited(longer: Work | None, shorter: Work | None, ratio: float, slack_us: float) -> str | None:
    """Returns words where calls that took longer did not work longer: they waited for processors that others had. A
    call whose work is the same cannot have been spared it; on all processors at once it takes the least time there is.
    None where they did, or where the kernel did not say.

    Args:
        longer: Of the calls that took longer; `shorter`: of the others.
        ratio, slack_us: By how much a call may be longer.
    """
    if longer is None or shorter is None or not longer.is_known() or longer.us > (1 + ratio) * shorter.us + slack_us:
        return None
    return f"it worked {longer.us:.0f} and {shorter.us:.0f} us, and waited for others"


@check("instruments agree")
def instruments_agree(
    instrumented_us: float | None, median_us: float, *, wall: bool, worked: tuple[Work | None, Work | None]
) -> str | NotGated:
    """Catches a guest that does less when it is timed than under instruments: in the instrumented guest a call may not
    take longer than a timed one by more than a quarter (GPU: time in which its kernels ran, by CUPTI) or three times as
    long (CPU: wall time by the judge, the copies of outputs included on both sides; and processor time, where the
    kernel gives samples: on a busy machine an honest call took 91 ms under instruments and 17 when timed).

    Does not catch: a difference within that, and native code that forges CUPTI's records.

    Args:
        instrumented_us: Time of a call under instruments; None: there are none.
        median_us: When timed.
        wall: Whether these are wall times, of a CPU.
        worked: Under instruments and when timed; None: the kernel does not say.
    """
    if instrumented_us is None:
        return NotGated("no record of kernels: this GPU has no CUPTI")
    seen = f"{instrumented_us:.1f} us a call under instruments, {median_us:.1f} us when timed"
    if busier(instrumented_us, median_us, wall=wall):
        if words := waited(*worked, *_allowance(wall)):
            return NotGated(f"{seen}; {words}")
        raise Rejected(Outcome.CHEATED, f"it does less when it is timed: {seen}")
    return f"{'it took' if wall else 'its kernels ran for'} {seen}"


def busier(instrumented_us: float, median_us: float, *, wall: bool) -> bool:
    """Whether a call took longer under instruments than one that is timed may."""
    ratio, slack_us = _allowance(wall)
    return instrumented_us > (1 + ratio) * median_us + slack_us


def _allowance(wall: bool) -> tuple[float, float]:
    return (WALL_RATIO, WALL_US) if wall else (BUSY_RATIO, BUSY_US)


def longer(call_us: float, raced_us: float) -> bool:
    """Whether a call takes longer where it has inputs of its own than in the race."""
    return call_us > (1 + ROUND_RATIO) * raced_us + ROUND_US


@check("every call counts")
def every_call(pairs_us: Sequence[tuple[float, float]], worked: tuple[Work | None, Work | None]) -> str | NotGated:
    """Catches answers remembered within a window: with more calls than input sets, calls come back to the same inputs.
    In windows of as many calls in which no input comes twice, a call may not take longer by more than a quarter: the
    quickest of all, and two windows of three beside their neighbours; nor work longer, where the kernel gives samples
    of processor time.

    Does not catch: a kernel that remembers and is faster by less than a quarter. Not looked at where a window of the
    race has no more calls than there are sets: nothing comes twice.

    Args:
        pairs_us: Time of a call without the copy in neighbouring windows: without inputs that come twice, and of the
            race's kind.
        worked: In all of them without such inputs, and of the race's kind; None: the kernel does not say.
    """
    without_us, raced_us = (min(times) for times in zip(*pairs_us, strict=True))
    more = sum(longer(*pair) for pair in pairs_us)
    seen = f"{without_us:.1f} us a call where each has inputs of its own, {raced_us:.1f} us in the race"
    if not longer(without_us, raced_us):
        return seen
    # On two cores with two other programs one quick window of 25 condemned an honest kernel: 442 us and 313 us.
    if more < MOST_PAIRS * len(pairs_us):
        return NotGated(f"{seen}; yet longer in {more} of {len(pairs_us)} pairs of windows only")
    # Beside other programs, whose data fill the cache too, honest ones were longer in 19 of 24.
    if words := waited(*worked, ROUND_RATIO, ROUND_US):
        return NotGated(f"{seen}; yet {words}")
    raise Rejected(
        Outcome.CHEATED, f"it remembers answers within a window: {seen}; longer in {more} of {len(pairs_us)} pairs"
    )
