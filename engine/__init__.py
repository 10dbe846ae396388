"""The bundled engine: one commit log, its indexes, delivery, and the private link to the proxies."""
