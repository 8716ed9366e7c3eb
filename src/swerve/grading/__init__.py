"""What graders are made of: finding an answer in a text, reading it, comparing it. Free of torch."""
