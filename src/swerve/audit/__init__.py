"""The estimator audit: single-sample estimates of KL against the exact one, in value and in gradient."""
