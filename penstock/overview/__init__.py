"""A whole deployment at a glance: its processes by their reports and pages, its engines by their answers."""
