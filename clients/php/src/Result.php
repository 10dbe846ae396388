<?php

declare(strict_types=1);

namespace Penstock\Client;

use Penstock\Message;

/** The outcome of one message after all retries. */
final class Result
{
    /** @param ?int $offset null while the message is in the fallback buffer (code BUFFERED) */
    public function __construct(
        public readonly int $code,
        public readonly string $id,
        public readonly ?int $queue = null,
        public readonly ?int $offset = null,
        public readonly ?string $error = null,
        public readonly ?Message $reply = null,
        public readonly int $attempts = 1,
    ) {
    }

    /** Stored. A request whose reply did not come is stored too, but not ok. */
    public function ok(): bool
    {
        return Action::of($this->code) === Action::Done;
    }
}
