"""Look-up by id and by key: files of names beside sealed segments, and what finds messages by them."""
