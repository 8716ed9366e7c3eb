"""Files of other programs: reads records, responses and problems, exports tables. Free of torch."""
