"""The command line: `main` is the entry, and each command has a file of its name.

The other files are no commands: what several of them share (`answer`, `checkout`, `kernel`, `options`, `screen`,
`streams`), and what `eval` alone is made of (`baseline`, `doing`, `evaluating`, `tally`).
"""
