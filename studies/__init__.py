"""What makes pages of the documentation: a folder per study; `python -m studies NAME` fills in what it found."""
