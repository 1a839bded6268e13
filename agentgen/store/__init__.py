"""What is kept: the ledger of runs in a database, and the catalog of problems on disk."""
