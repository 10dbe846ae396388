"""Admission of sends. In order: rules, admission, rate_limits, lag, engine_queries."""
