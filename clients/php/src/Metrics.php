<?php

declare(strict_types=1);

namespace Penstock\Client;

use Penstock\Delivery;

/** What an application may count of the client's work. Called as things happen: return soon. Override what you want. */
class Metrics
{
    /** One attempt at one proxy has ended. The failure is null for an answer, whatever its code. */
    public function call(string $method, string $endpoint, float $tookS, ?\Exception $failure): void
    {
    }

    /** The final outcome of one message, after all retries. */
    public function sent(Result $result): void
    {
    }

    /** A handler of `run` has ended. */
    public function handled(Delivery $delivery, int $verdict, float $tookS): void
    {
    }
}
