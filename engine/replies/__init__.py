"""Request-reply in the engine: requests that consumers hold, and the forwarding of replies to the proxies that wait."""
