<?php

declare(strict_types=1);

namespace Penstock\Client;

/**
 * One call at one endpoint brought no answer of the contract. `$sent` false: no proxy has done it.
 *
 * @internal
 */
final class CallFailed extends \Exception
{
    public function __construct(string $reason, public readonly bool $sent)
    {
        parent::__construct($reason);
    }
}
