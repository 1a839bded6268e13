"""What people see: the live tree, the table at the end, the findings on one kernel. Reads records, decides nothing."""
