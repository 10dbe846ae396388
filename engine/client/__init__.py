"""The only door to the engine for other packages: dial, rpc, append batches."""
