"""The web console: sign-in, topics, requests for topics, messages, the map of the installation."""
