"""Pairing of a candidate's parameters with the reference's."""

from __future__ import annotations

import pytest
import torch

from agentgen.sandbox.guest.candidate import digest
from agentgen.verify.claims import StateClaim
from agentgen.verify.weights import Unpaired, pair

W, B = torch.arange(12.0).view(3, 4), torch.full((3,), 0.5)


def claim(name: str, tensor: torch.Tensor) -> StateClaim:
    return StateClaim(name=name, shape=list(tensor.shape), dtype=str(tensor.dtype), digest=digest(tensor))


def test_equal_names_pair_whatever_they_hold() -> None:
    claims = [claim("w", W * 2), claim("b", B - 1)]
    assert pair(claims, {"w": W, "b": B}) == {"w": "w", "b": "b"}


def test_other_names_pair_by_content() -> None:
    claims = [claim("linear.bias", B), claim("linear.weight", W)]
    assert pair(claims, {"w": W, "b": B}) == {"linear.weight": "w", "linear.bias": "b"}


def test_a_name_with_another_shape_does_not_pair_by_name() -> None:
    claims = [claim("w", B), claim("b", W)]
    assert pair(claims, {"w": W, "b": B}) == {"w": "b", "b": "w"}


def test_equal_contents_pair_in_the_order_of_both_modules() -> None:
    zeros = torch.zeros(3)
    claims = [claim("x", zeros), claim("y", zeros), claim("z", zeros)]
    reference = {"first": zeros, "second": zeros.clone(), "third": zeros.clone()}
    assert pair(claims, reference) == {"x": "first", "y": "second", "z": "third"}


def test_a_name_taken_is_not_given_away_by_content() -> None:
    zeros = torch.zeros(3)
    claims = [claim("x", zeros), claim("first", zeros)]
    assert pair(claims, {"first": zeros, "second": zeros.clone()}) == {"first": "first", "x": "second"}


def test_contents_of_another_dtype_or_shape_do_not_pair() -> None:
    for other in (W.double(), W.view(4, 3)):
        with pytest.raises(Unpaired):
            pair([claim("x", other)], {"w": W})


def test_nothing_pairs_with_nothing() -> None:
    assert pair([], {}) == {}


def test_all_without_a_partner_are_named_with_their_shapes() -> None:
    claims = [claim("w", W), claim("packed", torch.rand(5, 6)), claim("scratch", torch.rand(7))]
    with pytest.raises(Unpaired) as raised:
        pair(claims, {"w": W, "b": B, "c": torch.rand(9)})
    message = str(raised.value)
    assert "ModelNew's packed (5, 6), scratch (7,) pair with nothing in Model" in message
    assert "Model's b (3,), c (9,) have no partner in ModelNew" in message
    assert "prepare()" in message
    assert "w (3, 4)" not in message


@pytest.mark.parametrize(
    ("claims", "reference", "said", "unsaid"),
    [
        ([], {"b": B}, "Model's b (3,) have no partner", "ModelNew's"),
        ([claim("x", torch.rand(2))], {}, "ModelNew's x (2,) pair with nothing", "no partner"),
    ],
)
def test_only_the_side_at_fault_is_named(
    claims: list[StateClaim], reference: dict[str, torch.Tensor], said: str, unsaid: str
) -> None:
    with pytest.raises(Unpaired) as raised:
        pair(claims, reference)
    assert said in str(raised.value)
    assert unsaid not in str(raised.value)


def test_two_of_one_content_need_two_partners() -> None:
    with pytest.raises(Unpaired, match=r"ModelNew's copy \(3,\)"):
        pair([claim("x", B), claim("copy", B)], {"b": B})
