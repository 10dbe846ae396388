"""Requests for topics: the form, its cost, the policy, and the way from a decision to the configuration."""
