"""Which of a candidate's parameters and buffers is which of the reference's."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agentgen.sandbox.guest.candidate import digest
from agentgen.verify.claims import StateClaim

_SHOWN = 10
"""A guest may name ten thousand."""


class Unpaired(Exception):
    """Some tensors of the candidate or of the reference have no partner."""


def pair(claimed: Sequence[StateClaim], reference: dict[str, torch.Tensor]) -> dict[str, str]:
    """Returns candidate name -> reference name: by equal name and shape, else by equal content under the public seed.

    Raises:
        Unpaired: naming every tensor without a partner.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in reference.items()}
    paired = {c.name: c.name for c in claimed if shapes.get(c.name) == tuple(c.shape)}
    free = [name for name in reference if name not in paired.values()]
    by_content: dict[str, list[str]] = {}
    for name in free:
        by_content.setdefault(digest(reference[name]), []).append(name)
    for c in claimed:
        partners = by_content.get(c.digest, [])
        # Two tensors of equal content (two biases of zeros) cannot be told apart: the order of both modules decides.
        if c.name not in paired and partners:
            paired[c.name] = partners.pop(0)
    # A buffer that is in no state dict is no weight: a table of constants.
    alone = [f"{c.name} {tuple(c.shape)}" for c in claimed if c.name not in paired and c.persistent]
    missing = [f"{n} {shapes[n]}" for n in reference if n not in paired.values()]
    if alone or missing:
        parts = [f"ModelNew's {_listed(alone)} pair with nothing in Model"] if alone else []
        parts += [f"Model's {_listed(missing)} have no partner in ModelNew"] if missing else []
        raise Unpaired(
            "; ".join(parts) + ". Parameters and buffers pair by name and shape, else by equal content; "
            "packed copies belong into prepare(), constants into attributes or buffers with persistent=False"
        )
    return paired


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
