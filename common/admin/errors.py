"""ConfigError ← Refused: the verb is understood, but the present state forbids it. The sentence says what would help."""

from common.config.errors import ConfigError


class Refused(ConfigError):
    code = 100
