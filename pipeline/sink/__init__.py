"""The sink: batch and streaming writes."""
