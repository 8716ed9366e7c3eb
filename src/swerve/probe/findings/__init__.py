"""What the measurements say: each module turns them into entries of the summary, without running a model."""
