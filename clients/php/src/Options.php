<?php

declare(strict_types=1);

namespace Penstock\Client;

use Penstock\Code;

/** Options of the client, with the cost of a change. */
final class Options
{
    /** @var \Closure(string): void */
    public readonly \Closure $tell;

    /**
     * @param int $deadlineMs for one send with all its retries; a pull or a request adds it to its wait. A call may
     *        take 500 ms more for an answer
     * @param int $callTimeoutMs for one attempt at one proxy; shorter finds a hung proxy sooner, and retries more
     * @param bool $framed false: buffered. Penstock takes both on one port
     * @param ?array<string, mixed> $tls the `ssl` options of a stream context, e.g. `['cafile' => …]`; null: plain TCP.
     *        Certificate and host name are verified unless these options say otherwise
     * @param int $backoffFirstMs doubled with each failure up to $backoffMaxMs, with jitter
     * @param int $credentialMs one minted credential is used this long; proxies take it for 300 s
     * @param int $idleMsMax an older idle connection may have been closed by the proxy
     * @param int $outageMsMax `run` ends when no pull has succeeded for so long; 0: never
     * @param int $extendMsMax `run` extends no lease beyond this
     * @param Metrics $metrics called with each call, outcome and handled message
     * @param \Closure(string): void $tell outages, topics that give nothing; null: PHP's error log
     */
    public function __construct(
        public readonly int $deadlineMs = 10_000,
        public readonly int $callTimeoutMs = 3_000,
        public readonly int $connectTimeoutMs = 1_000,
        public readonly bool $framed = true,
        public readonly ?array $tls = null,
        public readonly int $backoffFirstMs = 50,
        public readonly int $backoffMaxMs = 2_000,
        public readonly int $credentialMs = 60_000,
        public readonly int $idleMsMax = 30_000,
        public readonly int $outageMsMax = 600_000,
        public readonly int $extendMsMax = 3_600_000,
        ?\Closure $tell = null,
        public readonly Metrics $metrics = new Metrics(),
    ) {
        $this->tell = $tell ?? static function (string $sentence): void {
            error_log("penstock: $sentence");
        };
    }

    /** A number from 0 to 1. */
    public static function chance(): float
    {
        return mt_rand() / mt_getrandmax();
    }

    /**
     * The pause after a refusal: what the proxy told or the back-off, whichever is longer. At a rate limit the proxy has
     * promised a slot, which a longer pause would miss.
     */
    public static function pauseS(int $code, ?int $retryAfterMs, float $backoffS): float
    {
        $toldS = ($retryAfterMs ?? 0) / 1000;
        return $toldS > 0 && $code === Code::RATE_LIMITED ? $toldS : max($toldS, $backoffS);
    }

    /** The pause after the n-th failure in a row: a random point, given by $chance, in the upper half of a doubling pause. */
    public function backoffS(int $failures, float $chance): float
    {
        $pauseMs = min($this->backoffMaxMs, $this->backoffFirstMs * 2 ** min($failures - 1, 30));
        return $pauseMs * (0.5 + $chance / 2) / 1000;
    }
}
