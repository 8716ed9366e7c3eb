"""Speed, memory and accuracy, each measured against an alternative: `python -m benchmarks.NAME`."""
