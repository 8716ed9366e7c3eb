"""What makes pages of the documentation: a folder per study, each run as `python -m studies.NAME`."""
