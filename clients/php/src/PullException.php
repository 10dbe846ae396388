<?php

declare(strict_types=1);

namespace Penstock\Client;

/** The pull was refused, or no proxy answered before the deadline. `getCode()` is the contract's code. */
final class PullException extends PenstockException
{
    public function __construct(int $code, string $reason)
    {
        parent::__construct(Action::nameOf($code) . ": $reason", $code);
    }
}
