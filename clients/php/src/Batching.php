<?php

declare(strict_types=1);

namespace Penstock\Client;

/** When a BatchingProducer sends. */
final class Batching
{
    /**
     * @param int $lingerMs a message waits for others at most this long, as far as `send` is called again
     * @param int $bytes a call is made at once when so many bytes wait
     * @param int $messages or so many messages; a call has 1,000 at most
     */
    public function __construct(
        public readonly int $lingerMs = 5,
        public readonly int $bytes = 256 << 10,
        public readonly int $messages = 1_000,
    ) {
    }
}
