<?php

declare(strict_types=1);

namespace Penstock\Client;

/** @internal */
final class Clock
{
    /** Seconds that never jump; for deadlines. */
    public static function nowS(): float
    {
        return hrtime(true) / 1e9;
    }

    public static function sleepS(float $seconds): void
    {
        usleep(max(0, (int) ceil($seconds * 1e6)));
    }
}
