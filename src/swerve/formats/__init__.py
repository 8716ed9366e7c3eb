"""Files of other programs: records, responses and problems read from them, tables written for them. Free of torch."""
