"""Studies: variants of a recipe over seeds, run within a budget and compared. Runs are child processes."""
