"""The JSON API under /api/v1: the pages' functions with bearer tokens, and the document that describes them."""
