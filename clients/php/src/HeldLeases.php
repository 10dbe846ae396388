<?php

declare(strict_types=1);

namespace Penstock\Client;

use Penstock\Delivery;

/**
 * The deliveries of a run in the order of their pull, at most one of them in its handler. No I/O.
 *
 * A lease is extended once less than two thirds of it are left, and then all that have less than five sixths left go
 * with it.
 *
 * @internal
 */
final class HeldLeases
{
    /** Assumed when neither the consumer names a lease time nor the proxy tells the group's. */
    public const LEASE_UNKNOWN_S = 10.0;

    /** What a lease has at least; assumed until the first answer. */
    public float $leaseS = 1.0;
    /** @var list<HeldDelivery> */
    private array $waiting = [];
    private ?HeldDelivery $busy = null;
    /** A moving average; null: nothing was handled yet. */
    private ?float $handlingS = null;

    /** @param float $extendMaxS a lease is not extended beyond this time since its delivery */
    public function __construct(private readonly float $extendMaxS)
    {
    }

    /** How old an acknowledgement may get before it is delivered by a call of its own. */
    public function lookS(): float
    {
        return $this->leaseS / 6;
    }

    /** The number of messages to ask for: what is handled in a third of a lease, by the handling time so far. */
    public function wanted(int $most): int
    {
        if ($this->handlingS === null) {
            return 1;
        }
        return max(1, (int) min($most, $this->leaseS / 3 / max($this->handlingS, 1e-6)));
    }

    /** @param list<Delivery> $deliveries */
    public function pulled(array $deliveries, float $leaseS, float $nowS): void
    {
        $this->leaseS = $leaseS;
        foreach ($deliveries as $delivery) {
            $this->waiting[] = new HeldDelivery($delivery, $nowS, $nowS + $leaseS);
        }
    }

    /** The next delivery to handle. Those whose lease has ended are dropped, as others may have them by now. */
    public function begin(float $nowS): ?Delivery
    {
        while ($this->waiting !== []) {
            $first = array_shift($this->waiting);
            if (!$first->lost && $first->untilS > $nowS) {
                $this->busy = $first;
                return $first->delivery;
            }
        }
        return null;
    }

    /** The handler has returned. */
    public function end(float $tookS): void
    {
        $this->busy = null;
        $this->handlingS = $this->handlingS === null ? $tookS : 0.75 * $this->handlingS + 0.25 * $tookS;
    }

    /** Whether a lease has to be extended now. */
    public function isDue(float $nowS): bool
    {
        return $this->older($this->leaseS * 2 / 3, $nowS) !== [];
    }

    /** @return list<HeldDelivery> */
    public function toExtend(float $nowS): array
    {
        return $this->older($this->leaseS * 5 / 6, $nowS);
    }

    /**
     * Let go of all that no handler has seen.
     *
     * @return list<Delivery>
     */
    public function release(): array
    {
        $released = array_filter($this->waiting, fn (HeldDelivery $each) => !$each->lost);
        $this->waiting = [];
        $this->busy = null;
        return array_values(array_map(fn (HeldDelivery $each) => $each->delivery, $released));
    }

    /** @return list<HeldDelivery> */
    private function older(float $leftS, float $nowS): array
    {
        $held = $this->busy === null ? $this->waiting : [...$this->waiting, $this->busy];
        return array_values(array_filter($held, fn (HeldDelivery $each) => !$each->lost
            && $each->untilS - $nowS < $leftS
            && $nowS - $each->sinceS < $this->extendMaxS));
    }
}
