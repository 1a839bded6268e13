"""What a run has used, and which cap ended it, each in one line and as JSON. What is not known is never shown as 0."""

from __future__ import annotations

from agentgen.records.events import Used
from agentgen.records.run import Cap, Capped, Caps
from agentgen.store.rows import Spent

_UNITS = {Cap.USD: "USD", Cap.TOKENS: "tokens", Cap.MINUTES: "minutes", Cap.CANDIDATES: "candidates"}


def capped_line(capped: Capped) -> str:
    """Returns for example `stopped by --budget-tokens 20000: 18,734 spent, the next request could take 2,100`."""
    cap = capped.cap
    said = f"stopped by {cap.value} {capped.limit:.12g}"
    about = "about " if capped.about else ""
    spent = f"{about}{_amount(cap, capped.spent)} {'kept' if cap is Cap.CANDIDATES else 'spent'}"
    waiting = f", {_amount(cap, capped.waiting)} could go to unanswered requests" if capped.waiting else ""
    most = "" if cap is Cap.CANDIDATES else f", the next request could take {_amount(cap, capped.next)}"
    return f"{said}: {spent}{waiting}{most}"


def spent_line(spent: Spent, candidates: int, minutes: float) -> str:
    """Returns what a run has used so far, and the minutes of this invocation."""
    tokens, usd = spent.tokens, spent.cost_usd
    parts = [
        "tokens unknown" if tokens is None else f"{tokens:,} tokens",
        "cost unknown" if usd is None else f"{_amount(Cap.USD, usd)} USD",
        f"{_amount(Cap.MINUTES, minutes)} minutes",
        f"{candidates} candidates",
    ]
    return f"spent: {', '.join(parts)}"


def against(caps: Caps, used: Used | None, candidates: int, minutes: float) -> str:
    """Returns what was used of each cap that is set, for example `12,300 of 20,000 tokens · 3 of 40 candidates`. Where
    a part is estimated, the whole is unknown: `unknown (counted as 12,300) of 20,000 tokens`."""
    parts: list[str] = []
    for cap, limit, spent in (
        (Cap.TOKENS, caps.tokens, used and used.tokens),
        (Cap.USD, caps.usd, used and used.usd),
        (Cap.MINUTES, caps.minutes, minutes),
        (Cap.CANDIDATES, caps.candidates, candidates),
    ):
        if limit is None:
            continue
        known = "unknown" if spent is None else _amount(cap, spent)
        said = f"unknown (counted as {known})" if used and cap in used.about else known
        parts.append(f"{said} of {_amount(cap, limit)} {_UNITS[cap]}")
    return " · ".join(parts)


def spent_json(spent: Spent, candidates: int, minutes: float | None) -> dict[str, object]:
    """Returns the same for `--json`; null: of some reply it is not known."""
    return {
        "requests": spent.requests,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "tokens": spent.tokens,
        "usd": spent.cost_usd,
        "minutes": minutes,
        "candidates": candidates,
    }


def capped_json(capped: Capped | None) -> dict[str, object] | None:
    """Returns which cap ended a search, for `--json`; None where none did."""
    return None if capped is None else {**capped.model_dump(mode="json"), "unit": _UNITS[capped.cap]}


def _amount(cap: Cap, value: float) -> str:
    match cap:
        case Cap.USD:
            return f"{value:,.4f}"
        case Cap.MINUTES:
            return f"{value:,.1f}"
        case _:
            return f"{value:,.0f}"
