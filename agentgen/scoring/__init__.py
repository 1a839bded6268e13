"""Evaluations: datasets of cases, what is asserted of each, rates over all of them."""
