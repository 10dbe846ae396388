<?php

declare(strict_types=1);

namespace Penstock\Client;

use Penstock\Code;

/**
 * Pulls of a run that fail one after another: told once, ridden through with a back-off, up to a bound.
 *
 * @internal
 */
final class Outage
{
    private const STOP_LOOK_S = 0.05; // how soon a pause sees that the run shall stop
    private const WAITS_FOR = [Code::UNKNOWN_TOPIC, Code::UNKNOWN_GROUP]; // they end when an operator defines what is missing

    private int $failures = 0;
    private float $servedS;

    public function __construct(private readonly Options $options)
    {
        $this->servedS = Clock::nowS();
    }

    /** A pull has succeeded. */
    public function over(): void
    {
        if ($this->failures > 0) {
            ($this->options->tell)(sprintf('pulling again after %.0f s', Clock::nowS() - $this->servedS));
        }
        $this->failures = 0;
        $this->servedS = Clock::nowS();
    }

    /**
     * Pause after a failure.
     *
     * @param callable(): bool $stop
     * @throws PullException the given one, if waiting cannot help or was in vain for too long
     */
    public function failed(PullException $error, callable $stop): void
    {
        if (Action::of($error->getCode()) === Action::Refused && !in_array($error->getCode(), self::WAITS_FOR, true)) {
            throw $error;
        }
        $outageS = Clock::nowS() - $this->servedS;
        if ($this->options->outageMsMax > 0 && $outageS * 1000 >= $this->options->outageMsMax) {
            throw $error;
        }
        $this->failures++;
        if ($this->failures === 1) {
            ($this->options->tell)('no pull succeeds, trying again: ' . $error->getMessage());
        }
        $untilS = Clock::nowS() + $this->options->backoffS($this->failures, Options::chance());
        while (!$stop() && Clock::nowS() < $untilS) {
            Clock::sleepS(min(self::STOP_LOOK_S, $untilS - Clock::nowS()));
        }
    }
}
