"""The pages that axe-core looks at, by test. tests/unit/console/test_access.py says that no page is left out."""

WATCHED = (
    "/", "/topics", "/topics/orders", "/topics/orders/messages", "/topics/orders/messages/0/0",
    "/topics/orders/messages/0/0/trace", "/topics/orders/code?app=shop", "/topics/orders/delayed", "/topics/orders/change",
    "/groups", "/groups/billing", "/groups/billing/reset", "/groups/billing/dead-letters", "/applications", "/requests",
    "/requests/1", "/requests/new", "/search?q=ord", "/map", "/migrations", "/alerts", "/channels", "/api", "/policy",
    "/masking", "/audit", "/people", "/account",
)  # fmt: skip
OPERATED = (
    "/consumption/new?topics=orders", "/requests/1", "/broker-groups/main", "/limits", "/migrations/shop", "/groups/billing/change",
    "/migrations/shop/verify", "/map", "/connections", "/quotas", "/topics/orders/delete", "/topics/orders", "/groups/readers",
    "/applications/shop", "/applications/new", "/traffic", "/traffic/topics/orders?preview=1&to=main",
)  # fmt: skip
IN_STORIES = ("/sign-in", "/link/token", "/groups/ledger/dead-letters/main/0", "/connections/id/close")
"""Looked at where a story comes by: they need what only the story has."""
