<?php

declare(strict_types=1);

namespace Penstock\Client;

/** The other end does not implement this contract (for example a consumer proxy was asked to send). Retrying cannot help. */
final class ContractException extends PenstockException
{
}
