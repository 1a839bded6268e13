"""Asks for ideas: optimisations in plain words, conditioned on a kernel, its measurements and all that was tried."""

from __future__ import annotations

from agentgen.records.chat import ChatRequest, Role
from agentgen.records.machine import Target
from agentgen.search.facts import facts_text, system_text, us
from agentgen.search.feedback import trial_report
from agentgen.search.history import history, lineage
from agentgen.search.prompts import render
from agentgen.search.strategies import Growth
from agentgen.search.tree import Node, Tree


def ideas_request(tree: Tree, target: Target, growth: Growth, round: int, won: str = "") -> ChatRequest:
    """Returns the request for ideas on a candidate, or on the reference.

    Args:
        tree: what earlier rounds made; nothing of the round that asks.
        target: the problem on its device.
        growth: what to grow from, and how many ideas to ask for.
        round: the round that asks.
        won: ideas that won on related problems, a line each; may be empty.
    """
    run, parent, count = tree.run, tree.node(growth.parent), growth.ideas
    prompt = render(
        "ideas",
        facts=facts_text(run, target),
        playbook=render(f"playbook-{run.device_type}"),
        parent=parent_text(tree, target, parent),
        history=history(tree, parent),
        won=render("won", ideas=won) + "\n" if won else "",
        count=count,
        subject="the kernel above" if parent else "this computation",
        languages=", ".join(language.value for language in run.languages),
        parent_source=", the kernel above" if parent else "",
        over="the kernel above" if parent else f"the {target.best_baseline} baseline",
    )
    return ChatRequest(
        role=Role.IDEAS,
        problem=run.problem.name,
        target=run.device_type,
        parent=parent.candidate.id if parent else run.problem.root(run.arithmetic),
        nth=growth.nth,
        system=system_text(run),
        prompt=prompt,
        round=round,
    )


def parent_text(tree: Tree, target: Target, parent: Node | None) -> str:
    """Returns where the search stands: a candidate, or that there is none yet."""
    if parent is None:
        return render(
            "parent-root",
            baseline_us=us(target.baselines_us[target.best_baseline]),
            best_baseline=target.best_baseline,
            bound_us=us(target.bound_us),
        )
    return parent_candidate_text(tree, target, parent)


def parent_candidate_text(tree: Tree, target: Target, parent: Node) -> str:
    """Returns a candidate with how it came about, what was measured and its source."""
    return render(
        "parent-candidate",
        language=parent.candidate.language.value,
        round=parent.round,
        lineage=lineage(tree, parent),
        report=trial_report(tree.trial(parent), target, parent.candidate.source),
        source=parent.candidate.source.strip("\n"),
    )
