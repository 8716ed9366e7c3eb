"""`swerve view`: a local server of pages of runs, probes, studies and samples, also of those being written."""
