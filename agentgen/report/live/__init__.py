"""What people see while something goes on."""
