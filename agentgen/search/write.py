"""Asks for source: an implementation of an idea in one language, the repair of a candidate that failed, or a faster
program without an idea in words."""

from __future__ import annotations

from agentgen.records.candidate import Candidate, Language
from agentgen.records.chat import ChatRequest, Role
from agentgen.records.idea import Idea
from agentgen.records.machine import Target
from agentgen.records.run import Run
from agentgen.search.facts import facts_text, system_text
from agentgen.search.feedback import trial_report
from agentgen.search.history import failures, steps
from agentgen.search.ideas import parent_candidate_text, parent_text
from agentgen.search.prompts import render
from agentgen.search.strategies import Growth
from agentgen.search.tree import Node, Tree


def write_request(
    tree: Tree,
    target: Target,
    idea: Idea,
    language: Language,
    round: int,
    own: Node | None,
    failed: tuple[str, ...] = (),
    nth: int = 0,
) -> ChatRequest:
    """Returns the request for an implementation of `idea`.

    Args:
        tree: what earlier rounds made.
        target: the problem on its device.
        idea: on a candidate of `tree` or on the root.
        language: to write in.
        round: the round that asks.
        own: the best candidate of earlier rounds in this language.
        failed: candidates of the idea in this language that came to nothing.
        nth: how many implementations they were, repairs not counted.
    """
    prompt = render(
        "write",
        facts=facts_text(tree.run, target),
        contract=render("contract"),
        language_notes=_language_notes(language, target),
        title=idea.title,
        category=idea.category.value,
        reasoning=idea.explained,
        playbook=render(f"playbook/{idea.category.name.lower()}-{_hardware(language)}"),
        parent=_parent_text(tree, target, idea, language, own),
        language=language.value,
        workload=target.workload,
    )
    if failed:
        prompt = render("rewrite", prompt=prompt, language=language.value, failures=failures(tree, failed))
    return _request(tree.run, Role.WRITE, language, idea.id, prompt, round, nth)


def repair_request(tree: Tree, target: Target, failed: Node) -> ChatRequest:
    """Returns the request for a corrected version of a candidate that was evaluated and failed."""
    run, candidate = tree.run, failed.candidate
    idea = tree.idea(candidate.idea)
    prompt = render(
        "repair",
        facts=facts_text(run, target),
        contract=render("contract"),
        language_notes=_language_notes(candidate.language, target),
        idea=render("repair-idea", title=idea.title, category=idea.category.value, reasoning=idea.explained)
        if idea
        else "",
        source=candidate.source.strip("\n"),
        report=trial_report(tree.trial(failed), target, candidate.source),
        language=candidate.language.value,
        keeping=", keeping the idea" if idea else "",
    )
    return _request(run, Role.REPAIR, candidate.language, candidate.id, prompt, failed.round)


def refine_request(tree: Tree, target: Target, growth: Growth, round: int) -> ChatRequest:
    """Returns the request for a faster program than a candidate, or than the reference, in the run's first language."""
    run, parent, language = tree.run, tree.node(growth.parent), tree.run.languages[0]
    prompt = render(
        "refine",
        facts=facts_text(run, target),
        contract=render("contract"),
        language_notes=_language_notes(language, target),
        playbook=render(f"playbook-{_hardware(language)}"),
        parent=parent_text(tree, target, parent),
        history=steps(tree, parent),
        language=language.value,
        workload=target.workload,
        over=" that replaces the one above" if parent else "",
    )
    root = run.problem.root(run.arithmetic)
    return _request(run, Role.REFINE, language, parent.candidate.id if parent else root, prompt, round, growth.nth)


def written(tree: Tree, idea: Idea, language: Language, source: str) -> Candidate:
    """Returns the candidate that a reply to `write_request` makes."""
    parent = tree.node(idea.parent)
    return Candidate(source=source, language=language, idea=idea.id, parent=parent.candidate.id if parent else None)


def repaired(failed: Candidate, source: str) -> Candidate:
    """Returns the candidate that a reply to `repair_request` makes."""
    return Candidate(
        source=source, language=failed.language, idea=failed.idea, parent=failed.id, repair=failed.repair + 1
    )


def refined(tree: Tree, growth: Growth, source: str) -> Candidate:
    """Returns the candidate that a reply to `refine_request` makes."""
    return Candidate(source=source, language=tree.run.languages[0], parent=growth.parent)


def _request(
    run: Run, role: Role, language: Language, parent: str, prompt: str, round: int, nth: int = 0
) -> ChatRequest:
    return ChatRequest(
        role=role,
        problem=run.problem.name,
        target=language.value,
        parent=parent,
        nth=nth,
        system=system_text(run),
        prompt=prompt,
        round=round,
    )


def _hardware(language: Language) -> str:
    """Returns whose notes a program needs: a CUDA or Triton kernel is one for a GPU wherever it is tried out."""
    return "cpu" if language is Language.CPP else "cuda"


def _language_notes(language: Language, target: Target) -> str:
    if language is Language.TRITON:
        return render("lang-triton", version=target.machine.triton or "(not installed on the judge's machine)")
    return render(f"lang-{language.value}")


def _parent_text(tree: Tree, target: Target, idea: Idea, language: Language, own: Node | None) -> str:
    """Returns the kernel that the idea improves on and, where that is in another language, the best one in this."""
    parent = tree.node(idea.parent)
    if parent is None:
        return "It is to be implemented from the reference."
    texts = [parent_candidate_text(tree, target, parent)]
    if parent.candidate.language is not language and own is not None:
        source = own.candidate.source
        report = trial_report(tree.trial(own), target, source)
        stripped = source.strip("\n")
        texts.append(render("orientation", language=language.value, report=report, source=stripped))
    return "\n\n".join(texts)
