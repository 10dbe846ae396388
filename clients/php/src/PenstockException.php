<?php

declare(strict_types=1);

namespace Penstock\Client;

/** Base of all exceptions of this client: SendException, PullException, ContractException, ClosedException. */
class PenstockException extends \RuntimeException
{
}
