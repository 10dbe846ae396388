<?php

declare(strict_types=1);

namespace Penstock\Client;

use Penstock\Ack;
use Penstock\Code;
use Penstock\ConsumerClient;
use Penstock\Delivery;
use Penstock\PullRequest;
use Penstock\PullResponse;
use Penstock\TopicReport;
use Penstock\Verdict;

/**
 * One member of a group. Any number of members share the group's messages, without assignment.
 *
 * Acknowledgements wait here and ride on the next pull; `close()` delivers the last ones. What is pulled and not
 * acknowledged is redelivered, with `attempt` one higher, after its invisible time.
 */
final class Consumer
{
    private const ACK_BYTES = 120; // estimated size of one acknowledgement in a request
    private const SOCKET_MARGIN_S = 2.0;
    private const STOP_LOOK_S = 0.05; // how soon a pause sees that a run shall stop

    private readonly Pool $pool;
    private readonly CredentialMint $mint;
    /** @var list<Ack> */
    private array $acks = [];
    /** When the oldest of them was given. */
    private float $ackedS = 0.0;
    private int $acksRefused = 0;
    /** @var array<string, string> */
    private array $unservedTopics = [];
    private ?HeldLeases $held = null;

    /**
     * @param string|list<string> $endpoints "host:port,host:port" or a list
     * @param ?list<string> $topics null: all topics of the group's definition
     * @param ?int $invisibleMs how long deliveries are leased; null: the group's setting
     */
    public function __construct(
        string|array $endpoints,
        string $app,
        string $keyId,
        #[\SensitiveParameter] string $secret,
        private readonly string $group,
        private readonly ?array $topics = null,
        private readonly ?int $invisibleMs = null,
        private readonly Options $options = new Options(),
    ) {
        $this->pool = new Pool($endpoints, ConsumerClient::class, $options);
        $this->mint = new CredentialMint($app, $keyId, $secret, $options->credentialMs);
    }

    /**
     * The next deliveries; empty when none came within $waitMs. Retries at other proxies until the deadline option.
     *
     * @return list<Delivery>
     * @throws PullException refused (wrong credential, group or topic), or no proxy answered before the deadline
     * @throws ContractException no endpoint is a consumer proxy
     */
    public function pull(int $maxMessages = 32, int $waitMs = 20_000, ?int $maxBytes = null): array
    {
        return $this->served($maxMessages, $waitMs, $maxBytes, fn () => false)?->deliveries ?? [];
    }

    /**
     * The response that was served; null when $stop came before.
     *
     * @param callable(): bool $stop
     */
    private function served(int $maxMessages, int $waitMs, ?int $maxBytes, callable $stop): ?PullResponse
    {
        $deadlineS = Clock::nowS() + ($waitMs + $this->options->deadlineMs) / 1000;
        $refusal = new PullException(Code::UNAVAILABLE, 'no proxy could be reached before the deadline');
        $failures = 0;
        $dueS = 0.0;
        $stay = null;
        while (true) {
            $nowS = Clock::nowS();
            $startS = max($nowS, $dueS, $this->pool->usableAtS());
            if ($startS >= $deadlineS) {
                throw $refusal;
            }
            if ($stop()) {
                return null;
            }
            if ($startS > $nowS) {
                Clock::sleepS(min($startS - $nowS, self::STOP_LOOK_S));
                continue;
            }
            try {
                [$response, $endpoint] = $this->attempt($maxMessages, $waitMs, $maxBytes, $deadlineS, stay: $stay);
            } catch (CallFailed $failure) {
                $refusal = new PullException(Code::UNAVAILABLE, $failure->getMessage());
                continue;
            }
            $action = Action::of($response->code);
            if ($action === Action::Done) {
                if ($maxMessages > 0) {
                    $this->tellTopics(array_map(
                        fn (TopicReport $each) => Action::nameOf($each->code) . ": $each->error",
                        array_column($response->topics ?? [], null, 'topic'),
                    ));
                }
                return $response;
            }
            $refusal = new PullException($response->code, $response->error ?? 'no reason given');
            if ($response->code === Code::UNKNOWN_TOPIC) {
                $this->tellTopics(array_fill_keys($this->topics ?: ["(the group's)"], $refusal->getMessage()));
            }
            if ($action === Action::Refused) {
                throw $refusal;
            }
            $failures++;
            if ($action === Action::Elsewhere) {
                $this->pool->setAside($endpoint);
            } else {
                $backoffS = $this->options->backoffS($failures, Options::chance());
                $dueS = Clock::nowS() + Options::pauseS($response->code, $response->retry_after_ms, $backoffS);
                $stay = $response->code === Code::RATE_LIMITED ? $endpoint : null;
            }
        }
    }

    public function done(Delivery $delivery): void
    {
        $this->acknowledge($delivery, Verdict::DONE);
    }

    /** Request redelivery after $delayMs or the group's back-off. */
    public function retry(Delivery $delivery, ?int $delayMs = null, ?string $reason = null): void
    {
        $this->acknowledge($delivery, Verdict::RETRY, $delayMs, $reason);
    }

    /** Send it to the dead-letter topic now; the reason is stored with it. */
    public function reject(Delivery $delivery, ?string $reason = null): void
    {
        $this->acknowledge($delivery, Verdict::REJECT, null, $reason);
    }

    /** Extend its lease by $delayMs. Like all verdicts it travels with the next pull or flush. */
    public function extend(Delivery $delivery, int $delayMs): void
    {
        $this->acknowledge($delivery, Verdict::EXTEND, $delayMs);
    }

    /** Deliver the waiting acknowledgements now, without taking messages. */
    public function flush(): void
    {
        if ($this->acks !== []) {
            $this->pull(0, 0);
        }
    }

    /**
     * Pull and handle until $stop returns true, then give back what no handler has seen and deliver the last
     * acknowledgements.
     *
     * Leases are extended between handlers, not while one works: a handler that may take longer than half of a lease
     * calls `heartbeat()`. The rules are in clients/README.md.
     *
     * @param callable(Delivery): ?int $handle returns a constant of Penstock\Verdict, or null for DONE. If it throws,
     *        the message is retried with the exception as reason
     * @param callable(): bool $stop asked before each pull and each message
     * @param int $maxMessages of one pull; less when the handler is slow
     * @throws PullException refused for good, or no pull succeeded for the option outageMsMax; or the last
     *         acknowledgements could not be delivered
     */
    public function run(callable $handle, callable $stop, int $maxMessages = 32, int $waitMs = 5_000): void
    {
        $this->held = new HeldLeases($this->options->extendMsMax / 1000);
        $outage = new Outage($this->options);
        try {
            while (!$stop()) {
                try {
                    $this->pullHeld($maxMessages, $waitMs, $stop);
                    $outage->over();
                } catch (PullException $error) {
                    $outage->failed($error, $stop);
                }
                while (!$stop() && ($delivery = $this->held->begin(Clock::nowS())) !== null) {
                    $this->handle($handle, $delivery);
                    $this->heartbeat();
                }
            }
        } finally {
            foreach ($this->held->release() as $delivery) {
                $this->acknowledge($delivery, Verdict::RELEASE);
            }
            $this->held = null;
        }
        $this->flush();
    }

    /**
     * In a handler of `run`: deliver acknowledgements and extend leases if it is time; else it costs nothing. Call it at
     * least each sixth of a lease.
     */
    public function heartbeat(): void
    {
        $nowS = Clock::nowS();
        $isLate = $this->held !== null && $this->acks !== [] && $nowS - $this->ackedS >= $this->held->lookS();
        if ($isLate || $this->held?->isDue($nowS)) {
            try {
                $this->attemptOnce();
            } catch (CallFailed) {
                // The next heartbeat or pull tries again.
            }
        }
    }

    /** Acknowledgements that were late or invalid: their messages are redelivered. */
    public function acksRefused(): int
    {
        return $this->acksRefused;
    }

    /**
     * The topics that the last pull named and that give nothing, with the reason of each.
     *
     * @return array<string, string>
     */
    public function unservedTopics(): array
    {
        return $this->unservedTopics;
    }

    public function close(): void
    {
        try {
            $this->flush();
        } finally {
            $this->pool->close();
        }
    }

    private function acknowledge(Delivery $delivery, int $verdict, ?int $delayMs = null, ?string $reason = null): void
    {
        if ($this->acks === []) {
            $this->ackedS = Clock::nowS();
        }
        $this->acks[] = self::ack($delivery, $verdict, $delayMs, $reason);
    }

    private static function ack(Delivery $delivery, int $verdict, ?int $delayMs, ?string $reason): Ack
    {
        return new Ack([
            'receipt' => $delivery->receipt,
            'verdict' => $verdict === Verdict::DONE ? null : $verdict,
            'delay_ms' => $delayMs,
            'reason' => $reason,
        ]);
    }

    /** @param callable(): bool $stop */
    private function pullHeld(int $maxMessages, int $waitMs, callable $stop): void
    {
        $response = $this->served($this->held->wanted($maxMessages), $waitMs, null, $stop);
        if ($response !== null) {
            $leaseMs = $this->invisibleMs ?? $response->invisible_ms ?? HeldLeases::LEASE_UNKNOWN_S * 1000;
            $this->held->pulled($response->deliveries, $leaseMs / 1000, Clock::nowS());
        }
    }

    /** @param callable(Delivery): ?int $handle */
    private function handle(callable $handle, Delivery $delivery): void
    {
        $beganS = Clock::nowS();
        try {
            [$verdict, $reason] = [$handle($delivery) ?? Verdict::DONE, null];
            if (!in_array($verdict, [Verdict::DONE, Verdict::RETRY, Verdict::REJECT], true)) {
                throw new \UnexpectedValueException('the handler returned no verdict: use DONE, RETRY, REJECT or null');
            }
        } catch (\Throwable $error) { // also an \Error: a handler's fault costs its message an attempt, not the loop
            [$verdict, $reason] = [Verdict::RETRY, $error::class . ': ' . $error->getMessage()];
        }
        $tookS = Clock::nowS() - $beganS;
        $this->held->end($tookS);
        $this->acknowledge($delivery, $verdict, null, $reason);
        $this->options->metrics->handled($delivery, $verdict, $tookS);
    }

    /** One call that delivers acknowledgements and extensions and takes nothing. */
    private function attemptOnce(): void
    {
        if ($this->pool->usableAtS() <= Clock::nowS()) {
            $this->attempt(0, 0, null, Clock::nowS() + $this->options->deadlineMs / 1000, $this->held);
        }
    }

    /**
     * @return array{PullResponse, Endpoint}
     * @throws CallFailed
     */
    private function attempt(
        int $maxMessages,
        int $waitMs,
        ?int $maxBytes,
        float $deadlineS,
        ?HeldLeases $held = null,
        ?Endpoint $stay = null,
    ): array {
        $sentS = Clock::nowS();
        $waitMs = max(0, min($waitMs, (int) (($deadlineS - $sentS) * 1000)));
        $sent = count($this->acks);
        $extended = $held?->toExtend($sentS) ?? [];
        $acks = $this->acks;
        foreach ($extended as $each) {
            $acks[] = self::ack($each->delivery, Verdict::EXTEND, (int) ($held->leaseS * 1000), null);
        }
        $who = ['credential' => $this->mint->credential(), 'group' => $this->group, 'topics' => $this->topics];
        $request = new PullRequest($who + [
            'max_messages' => $maxMessages,
            'max_bytes' => $maxBytes,
            'wait_ms' => $waitMs,
            'acks' => $acks ?: null,
            'invisible_ms' => $this->invisibleMs,
        ]);
        $size = count($acks) * self::ACK_BYTES;
        $hello = new PullRequest($who + ['max_messages' => 0]);
        $timeoutS = $waitMs / 1000 + self::SOCKET_MARGIN_S;
        [$response, $endpoint] = $this->pool->call('pull', $request, $timeoutS, $deadlineS, $size, $hello, $stay);
        $this->settle($sent, $extended, $sentS, $response);
        if (Action::of($response->code) === Action::Done) {
            $this->pool->praise($endpoint);
        }
        return [$response, $endpoint];
    }

    /**
     * Drop settled acknowledgements; the others go with the next pull. A refused pull's acknowledgements have codes of
     * their own; those with the pull's code were not looked at.
     *
     * @param list<HeldDelivery> $extended
     */
    private function settle(int $sent, array $extended, float $sentS, PullResponse $response): void
    {
        $again = [];
        foreach (array_slice($this->acks, 0, $sent) as $position => $ack) {
            $code = $response->ack_results[$position]->code ?? Code::TIMEOUT;
            $action = Action::of($code);
            if ($action === Action::Refused && $code !== $response->code) {
                $this->acksRefused++;
            } elseif ($action !== Action::Done) {
                $again[] = $ack;
            }
        }
        $this->acks = array_merge($again, array_slice($this->acks, $sent));
        $this->ackedS = Clock::nowS();
        foreach ($extended as $position => $each) {
            $code = $response->ack_results[$sent + $position]->code ?? Code::TIMEOUT;
            if (Action::of($code) === Action::Done) {
                $each->untilS = $sentS + ($this->held?->leaseS ?? 0.0);
            } elseif (Action::of($code) === Action::Refused && $code !== $response->code) {
                $each->lost = true;
            }
        }
    }

    /**
     * Tell of each topic that gives nothing, and when it is served again; once per change.
     *
     * @param array<string, string> $unserved
     */
    private function tellTopics(array $unserved): void
    {
        foreach (array_diff_key($unserved, $this->unservedTopics) as $topic => $reason) {
            ($this->options->tell)("topic $topic gives nothing: $reason");
        }
        foreach (array_diff_key($this->unservedTopics, $unserved) as $topic => $reason) {
            ($this->options->tell)("topic $topic is served again");
        }
        $this->unservedTopics = $unserved;
    }
}
