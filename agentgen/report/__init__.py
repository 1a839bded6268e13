"""What people see: the live tree, the table at the end, the findings on one kernel, evaluations and what changed
between two, the leaderboard, a run as a page and the certified kernels as a site. Reads records, decides nothing."""
