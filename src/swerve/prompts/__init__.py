"""Problems as token ids; the only place that calls a chat template."""
