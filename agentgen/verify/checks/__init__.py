"""What the judge looks at: each check a function with a name, that says what it catches and what not."""
