"""Devices doing evaluations: the orchestrator's side of the judge programs."""
