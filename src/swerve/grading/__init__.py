"""What graders are made of: answers found in a text, readers of arithmetic and mathematics, policies."""
