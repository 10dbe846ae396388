"""Checks of each call: access by role, passwords, the brake on sign-ins, origins, headers."""
