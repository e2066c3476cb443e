"""From token ids to whole characters, stop strings and marked parts of the answer."""
