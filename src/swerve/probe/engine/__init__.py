"""Models and sequences in, statistics of every token out: each model is run once, every pair is compared."""
