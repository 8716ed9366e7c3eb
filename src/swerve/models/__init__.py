"""Models and tokenizers: built tiny, loaded safely, saved with a manifest."""
