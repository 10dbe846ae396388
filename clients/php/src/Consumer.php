<?php

namespace Penstock\Client;

use Penstock\Ack;
use Penstock\Code;
use Penstock\ConsumerClient;
use Penstock\Delivery;
use Penstock\PullRequest;
use Penstock\PullResponse;
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

    private readonly Pool $pool;
    private readonly CredentialMint $mint;
    /** @var list<Ack> */
    private array $acks = [];
    private int $acksRefused = 0;

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
     * @throws ContractException the endpoint is not a consumer proxy
     */
    public function pull(int $maxMessages = 32, int $waitMs = 20_000, ?int $maxBytes = null): array
    {
        $deadlineS = Clock::nowS() + ($waitMs + $this->options->deadlineMs) / 1000;
        $refusal = new PullException(Code::UNAVAILABLE, 'no proxy could be reached before the deadline');
        $failures = 0;
        $dueS = 0.0;
        while (true) {
            $nowS = Clock::nowS();
            $startS = max($nowS, $dueS, $this->pool->usableAtS());
            if ($startS >= $deadlineS) {
                throw $refusal;
            }
            if ($startS > $nowS) {
                Clock::sleepS($startS - $nowS);
                continue;
            }
            $sent = count($this->acks);
            try {
                [$response, $endpoint] = $this->attempt($maxMessages, $waitMs, $maxBytes);
            } catch (CallFailed $failure) {
                $refusal = new PullException(Code::UNAVAILABLE, $failure->getMessage());
                continue;
            }
            $action = Action::of($response->code);
            if ($action === Action::Done) {
                $this->pool->praise($endpoint);
                $this->settle($sent, $response);
                return $response->deliveries;
            }
            $refusal = new PullException($response->code, $response->error ?? 'no reason given');
            if ($action === Action::Refused) {
                throw $refusal;
            }
            $failures++;
            if ($action === Action::Elsewhere) {
                $this->pool->setAside($endpoint);
            } else {
                $pauseS = max(($response->retry_after_ms ?? 0) / 1000, $this->options->backoffS($failures, Options::chance()));
                $dueS = Clock::nowS() + $pauseS;
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
     * Pull and handle until $stop returns true, then deliver the last acknowledgements.
     *
     * @param callable(Delivery): ?int $handle returns a constant of Penstock\Verdict, or null for DONE. If it throws,
     *        the message is retried with the exception as reason
     * @param callable(): bool $stop asked before each pull
     */
    public function run(callable $handle, callable $stop, int $maxMessages = 32, int $waitMs = 5_000): void
    {
        while (!$stop()) {
            foreach ($this->pull($maxMessages, $waitMs) as $delivery) {
                try {
                    $this->acknowledge($delivery, $handle($delivery) ?? Verdict::DONE);
                } catch (\Exception $error) {
                    $this->retry($delivery, null, $error::class . ': ' . $error->getMessage());
                }
            }
        }
        $this->flush();
    }

    /** Acknowledgements that were late or invalid: their messages are redelivered. */
    public function acksRefused(): int
    {
        return $this->acksRefused;
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
        $this->acks[] = new Ack([
            'receipt' => $delivery->receipt,
            'verdict' => $verdict === Verdict::DONE ? null : $verdict,
            'delay_ms' => $delayMs,
            'reason' => $reason,
        ]);
    }

    /**
     * @return array{PullResponse, Endpoint}
     * @throws CallFailed
     */
    private function attempt(int $maxMessages, int $waitMs, ?int $maxBytes): array
    {
        $who = ['credential' => $this->mint->credential(), 'group' => $this->group, 'topics' => $this->topics];
        $request = new PullRequest($who + [
            'max_messages' => $maxMessages,
            'max_bytes' => $maxBytes,
            'wait_ms' => $waitMs,
            'acks' => $this->acks ?: null,
            'invisible_ms' => $this->invisibleMs,
        ]);
        $size = count($this->acks) * self::ACK_BYTES;
        $hello = new PullRequest($who + ['max_messages' => 0]);
        return $this->pool->call('pull', $request, $waitMs / 1000 + self::SOCKET_MARGIN_S, $size, $hello);
    }

    /** Drop settled acknowledgements; the others go with the next pull. */
    private function settle(int $sent, PullResponse $response): void
    {
        $again = [];
        foreach (array_slice($this->acks, 0, $sent) as $position => $ack) {
            $action = Action::of($response->ack_results[$position]->code ?? Code::OK);
            if ($action === Action::Refused) {
                $this->acksRefused++;
            } elseif ($action !== Action::Done) {
                $again[] = $ack;
            }
        }
        $this->acks = array_merge($again, array_slice($this->acks, $sent));
    }
}
