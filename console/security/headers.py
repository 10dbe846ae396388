"""Headers of every answer."""

from flask import Response

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
FIXED = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
HSTS = "max-age=31536000"


def add_headers(response: Response, is_https: bool, is_static: bool) -> Response:
    """Add the security headers. Pages are not cached: they are of one person."""
    for name, value in FIXED.items():
        response.headers.setdefault(name, value)
    if is_https:
        response.headers["Strict-Transport-Security"] = HSTS
    if not is_static:
        response.headers["Cache-Control"] = "no-store"
    return response
