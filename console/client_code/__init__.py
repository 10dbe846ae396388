"""Programs that a person pastes: they send to one topic and pull from it, in each language."""
