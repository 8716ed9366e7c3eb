"""Word problems in English: stories, written solutions, and a checker of their steps."""
