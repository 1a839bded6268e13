"""The judge: one long-lived process per device that holds reference, oracle, baselines, inputs, clock and verdict."""
