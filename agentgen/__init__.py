"""agentgen turns language models' ideas into GPU kernels that somebody would dare to ship.

Importing this package does nothing. `agentgen.cli` is the way in; the README has the map.
"""

__version__ = "0.1.0"
