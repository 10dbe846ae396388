"""Test messages: sent through a producer proxy as an application that may only send."""

import time

from common.admin import applications
from common.admin.administrator import Administrator
from common.admin.applications import Grants
from common.admin.errors import StateConflict
from common.config.definitions import ApplicationDefinition
from common.config.errors import EntryNotFound, VersionConflict
from common.config.root_keys import OPTION
from common.contract import Credential, Message, SendRequest, SendResult
from common.credential import mint
from common.proxy_link import ProxyCallError, ProxyLink, ProxyUnreachable
from console.installation.configuration import Configuration
from console.installation.processes import PRODUCER_PROXY, addresses_of

APPLICATION = "penstock-console"
SEND_S_MAX = 5.0
NOT_KNOWN_YET = 104  # the proxy has not applied the new application yet
TRIES_S, TRY_GAP_S = 2.0, 0.1


class TrialMessages:
    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def send(self, who: str, topic: str, body: bytes, key: str) -> SendResult:
        """Send one message and return its result, whose code may be an error's.

        Raises:
            ProxyCallError: no proxy answers. ConfigError: the store is away.
        """
        credential = self._credential(self._configuration.admin(who))
        end = time.monotonic() + TRIES_S
        while True:
            result = self._once(credential, Message(topic=topic, body=body, key=key or None))
            if result.code != NOT_KNOWN_YET or time.monotonic() > end:
                return result
            time.sleep(TRY_GAP_S)

    def _once(self, credential: Credential, message: Message) -> SendResult:
        last: ProxyCallError = ProxyUnreachable("no producer proxy reports to the configuration store: start one")
        for address in addresses_of(self._configuration.store, PRODUCER_PROXY):
            try:
                with ProxyLink("send", address) as link:
                    request = SendRequest(credential, [message], int(SEND_S_MAX * 1000), None)
                    return link.call(request, SEND_S_MAX + 1.0, empty=SendRequest(credential, [])).results[0]
            except ProxyUnreachable as error:
                last = error
        raise last

    def _credential(self, admin: Administrator) -> Credential:
        """The application's, which is created at the first use. Its secret is stored, or derived, so no file keeps it."""
        try:
            found, _ = applications.show(admin, APPLICATION)
        except EntryNotFound:
            try:
                applications.create(admin, APPLICATION, Grants(send=("*",)))
            except VersionConflict:
                pass  # another thread was faster
            found, _ = applications.show(admin, APPLICATION)
        key = (found if found.keys else self._with_key(admin)).keys[-1]
        secret = admin.root_keys().secret_of(APPLICATION, key)
        if secret is None:
            problem = f"the console does not have the root key of its key {key.key_id}: give it with {OPTION} FILE"
            raise StateConflict(f"application {APPLICATION}: {problem}, or revoke the key")
        return Credential(*mint(APPLICATION, key.key_id, secret, time.time_ns() // 1_000_000))

    def _with_key(self, admin: Administrator) -> ApplicationDefinition:
        applications.rotate(admin, APPLICATION)
        return applications.show(admin, APPLICATION)[0]
