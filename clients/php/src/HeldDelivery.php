<?php

declare(strict_types=1);

namespace Penstock\Client;

use Penstock\Delivery;

/**
 * One delivery of a run that is not yet acknowledged. Times are Clock's seconds.
 *
 * @internal
 */
final class HeldDelivery
{
    /** Its extension was refused. */
    public bool $lost = false;

    /** @param float $untilS the end of its lease */
    public function __construct(public readonly Delivery $delivery, public readonly float $sinceS, public float $untilS)
    {
    }
}
