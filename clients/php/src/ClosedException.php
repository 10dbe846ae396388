<?php

declare(strict_types=1);

namespace Penstock\Client;

/** A batching producer is closed; the message was not taken. */
final class ClosedException extends PenstockException
{
}
