"""Request-reply in the engine: requests that were handed out, and the way of a reply to the proxy that waits for it."""
