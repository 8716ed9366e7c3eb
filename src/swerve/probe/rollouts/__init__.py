"""Which texts are read: rollouts of a run, what training recorded, responses from elsewhere; and their tokens."""
