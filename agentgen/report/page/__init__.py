"""One self-contained HTML file for a run: `agentgen report`."""
