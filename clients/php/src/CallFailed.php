<?php

declare(strict_types=1);

namespace Penstock\Client;

/**
 * One call at one endpoint brought no answer. `$sent` false: no byte of it left this machine.
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
