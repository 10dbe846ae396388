<?php

declare(strict_types=1);

namespace Penstock\Client;

/** No endpoint implements this contract. Retrying cannot help. */
final class ContractException extends PenstockException
{
    /** @internal `$sent` false: no proxy has done the call */
    public function __construct(string $reason, public readonly bool $sent = false)
    {
        parent::__construct($reason);
    }
}
