"""Asks for source: a first implementation of an idea in one language, or the repair of a candidate that failed."""

from __future__ import annotations

from agentgen.records.candidate import Candidate, Language
from agentgen.records.chat import ChatRequest, Role
from agentgen.records.idea import Idea
from agentgen.records.machine import Target
from agentgen.records.run import Run
from agentgen.search.facts import device_type, facts_text, system_text
from agentgen.search.feedback import trial_report
from agentgen.search.ideas import parent_candidate_text
from agentgen.search.prompts import render
from agentgen.search.select import leader
from agentgen.search.tree import Node, Tree


def write_request(tree: Tree, target: Target, idea: Idea, language: Language) -> ChatRequest:
    """Returns the request for an implementation of `idea`; `tree` holds what earlier rounds made."""
    prompt = render(
        "write",
        facts=facts_text(tree.run, target),
        contract=render("contract"),
        language_notes=_language_notes(language, target),
        title=idea.title,
        category=idea.category.value,
        reasoning=idea.reasoning,
        playbook=render(f"playbook/{idea.category.name.lower()}-{device_type(tree.run)}"),
        parent=_parent_text(tree, target, idea, language),
        language=language.value,
    )
    return _request(tree.run, Role.WRITE, language, idea.id, prompt)


def repair_request(run: Run, target: Target, idea: Idea, failed: Node) -> ChatRequest:
    """Returns the request for a corrected version of a candidate that was evaluated and failed."""
    candidate = failed.candidate
    prompt = render(
        "repair",
        facts=facts_text(run, target),
        contract=render("contract"),
        language_notes=_language_notes(candidate.language, target),
        title=idea.title,
        category=idea.category.value,
        reasoning=idea.reasoning,
        source=candidate.source.strip("\n"),
        report=trial_report(failed.trial, target, candidate.source),
        language=candidate.language.value,
    )
    return _request(run, Role.REPAIR, candidate.language, candidate.id, prompt)


def first_candidate(tree: Tree, idea: Idea, language: Language, source: str) -> Candidate:
    """Returns the candidate that a reply to `write_request` makes."""
    parent = tree.node(idea.parent)
    return Candidate(
        source=source, language=language, idea=idea.id, parent=parent.candidate.id if parent else None, repair=0
    )


def repaired_candidate(failed: Candidate, source: str) -> Candidate:
    """Returns the candidate that a reply to `repair_request` makes."""
    return Candidate(
        source=source, language=failed.language, idea=failed.idea, parent=failed.id, repair=failed.repair + 1
    )


def _request(run: Run, role: Role, language: Language, parent: str, prompt: str) -> ChatRequest:
    return ChatRequest(
        role=role,
        problem=run.problem.name,
        target=language.value,
        parent=parent,
        system=system_text(run),
        prompt=prompt,
    )


def _language_notes(language: Language, target: Target) -> str:
    if language is Language.TRITON:
        return render("lang-triton", version=target.machine.triton or "(not installed on the judge's machine)")
    return render(f"lang-{language.value}")


def _parent_text(tree: Tree, target: Target, idea: Idea, language: Language) -> str:
    """Returns the kernel that the idea improves on and, where that is in another language, the best one in this."""
    parent = tree.node(idea.parent)
    if parent is None:
        return "It is to be implemented from the reference."
    texts = [parent_candidate_text(tree, target, parent)]
    if parent.candidate.language is not language:
        own = leader(node for node in tree.nodes if node.candidate.language is language)
        if own is not None:
            source, report = own.candidate.source.strip("\n"), trial_report(own.trial, target, own.candidate.source)
            texts.append(render("orientation", language=language.value, report=report, source=source))
    return "\n\n".join(texts)
