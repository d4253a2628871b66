"""What people and programs are shown: status, why, runs, events, the summary of a pass."""
