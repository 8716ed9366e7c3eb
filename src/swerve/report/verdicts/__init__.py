"""What the page of a run says first: a file for each verdict, with a sentence for each of its outcomes.

The outcomes are rise, fall, nothing to be seen (with what would have been), not determined (because of what), not
tested, and too few. `tests/report/verdicts` renders all of them and compares them as text.
"""
