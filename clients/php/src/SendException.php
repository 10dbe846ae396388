<?php

declare(strict_types=1);

namespace Penstock\Client;

/** One message was not stored, or may not be. */
final class SendException extends PenstockException
{
    public function __construct(public readonly Result $result)
    {
        $reason = $result->error ?? 'no reason given';
        parent::__construct(Action::nameOf($result->code) . ": $reason (message id $result->id)", $result->code);
    }

    /** True: send again only with the same id. */
    public function maybeStored(): bool
    {
        return Action::of($this->result->code) === Action::Unknown;
    }
}
