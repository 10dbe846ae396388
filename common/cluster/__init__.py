"""Types that brokers and controllers of replicated groups share. Design: docs/design/0031-switch-over.md."""
