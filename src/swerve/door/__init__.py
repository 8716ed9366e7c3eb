"""What Python calls: a function for each command, with its options as keywords. Loads nothing heavy by itself."""
