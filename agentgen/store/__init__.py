"""What is kept: the ledger of runs in a database, and a run as a file that can be carried elsewhere; on disk the
catalog of problems and the entries of the leaderboard."""
