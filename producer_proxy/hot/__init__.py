"""The hot path of send, native code only."""
