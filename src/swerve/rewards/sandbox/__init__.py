"""Where graders run that must be bounded: worker processes under limits, and a reward file of the user's own."""
