"""The command line: one file per command. `main` is the entry."""
