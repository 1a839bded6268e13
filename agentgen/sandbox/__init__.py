"""Where candidates run: the sandbox protocol, its implementations, and the guest program inside."""
