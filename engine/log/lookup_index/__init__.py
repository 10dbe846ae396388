"""Look-up by id and by key: lookup files beside sealed segments, partial indexes of the active one, and searches."""
