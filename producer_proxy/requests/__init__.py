"""Request-reply: calls that wait for a reply, and replies."""
