"""Where messages come from: one interface, one module a kind of store."""
