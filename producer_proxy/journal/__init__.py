"""The repair journal of dual writes: what the secondary lacks, on this proxy's disk."""
