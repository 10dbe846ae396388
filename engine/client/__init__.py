"""The only entry to the engine for other packages: links, requests, append batches, routing to broker groups."""
