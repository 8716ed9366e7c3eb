"""Calls that may hang, fill the memory or attack this process: in forked processes under limits."""
