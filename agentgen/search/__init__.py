"""The search: what to ask a model for, what to evaluate, and where to go on. `loop.run_search` tells the story."""
