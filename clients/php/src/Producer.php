<?php

declare(strict_types=1);

namespace Penstock\Client;

use Penstock\Code;
use Penstock\Delivery;
use Penstock\Message;
use Penstock\ProducerClient;
use Penstock\SendRequest;

/**
 * Sends to Penstock through any of several producer proxies and retries what needs it, each message by its own result
 * code.
 *
 * A message without an id gets one, set in the caller's object, since a retry after a broken connection is free of
 * duplicates only with the same id.
 */
final class Producer
{
    /** @internal */
    public const CALL_MESSAGES_MAX = 1_000;
    private const CALL_BYTES_MAX = 8_000_000; // well under Thrift's frame limit of 16,384,000

    private readonly Pool $pool;
    private readonly CredentialMint $mint;
    private int $retried = 0;

    /** @param string|list<string> $endpoints "host:port,host:port" or a list */
    public function __construct(
        string|array $endpoints,
        string $app,
        string $keyId,
        #[\SensitiveParameter] string $secret,
        private readonly Options $options = new Options(),
    ) {
        $this->pool = new Pool($endpoints, ProducerClient::class, $options);
        $this->mint = new CredentialMint($app, $keyId, $secret, $options->credentialMs);
    }

    /**
     * Send one message and return once it is stored.
     *
     * @param ?int $durability a constant of Penstock\Durability; null: what the topic says
     * @param ?int $replyWaitMs wait for a consumer's reply
     * @param ?int $deadlineMs for everything, retries included; null: the option. `$replyWaitMs` is added to it
     * @throws SendException it was refused, or the deadline passed; `maybeStored()` tells whether it may be stored all
     *        the same
     * @throws ContractException no endpoint is a producer proxy, and nothing is stored
     */
    public function send(Message $message, ?int $durability = null, ?int $replyWaitMs = null, ?int $deadlineMs = null): Result
    {
        $result = $this->sendAll([$message], $durability, $replyWaitMs, $deadlineMs)[0];
        return $result->ok() ? $result : throw new SendException($result);
    }

    /**
     * Send one message and return what a consumer replies.
     *
     * @param int $waitMs how long, added to the deadline; the message is not dispatched afterwards
     * @throws SendException as for send; or no reply, for NO_CONSUMER, NO_REPLY and CONSUMER_FAILED say why; or TIMEOUT,
     *        as an earlier attempt was stored, whose reply cannot be had
     */
    public function request(Message $message, int $waitMs, ?int $durability = null, ?int $deadlineMs = null): Message
    {
        $result = $this->send($message, $durability, $waitMs, $deadlineMs);
        return $result->reply ?? throw new SendException($result);
    }

    /**
     * Answer a delivery that has a reply_token; returns once the waiting caller has the reply.
     *
     * @param ?array<string, string> $properties
     * @throws SendException STALE_RECEIPT when the caller no longer waits, or as for send
     */
    public function reply(Delivery $delivery, string $body, ?array $properties = null): Result
    {
        return $this->send(new Message([
            'topic' => $delivery->message->topic,
            'body' => $body,
            'properties' => $properties,
            'reply_to' => $delivery->reply_token ?? '',
        ]));
    }

    /**
     * Send many messages, of any topics, and return one result each, in order. Does not throw for a message's failure.
     *
     * Messages of one key keep their order, over retries too: a message waits while an earlier one of its key does.
     *
     * @param list<Message> $messages
     * @return list<Result>
     */
    public function sendAll(
        array $messages,
        ?int $durability = null,
        ?int $replyWaitMs = null,
        ?int $deadlineMs = null,
    ): array {
        foreach ($messages as $message) {
            $message->id ??= self::newId();
        }
        $nowS = Clock::nowS();
        $deadlineS = $nowS + (($deadlineMs ?? $this->options->deadlineMs) + ($replyWaitMs ?? 0)) / 1000;
        $plan = new SendPlan(array_values($messages), $nowS, $this->options, (bool) $replyWaitMs);
        $stay = null;
        while (!$plan->finished()) {
            $nowS = Clock::nowS();
            $startS = max($plan->nextDueS(), $this->pool->usableAtS());
            if (max($startS, $nowS) >= $deadlineS) {
                break;
            }
            if ($startS > $nowS) {
                Clock::sleepS($startS - $nowS);
                continue;
            }
            [$indexes, $size] = $this->oneCall($messages, $plan->due($nowS));
            $leftMs = max(1, (int) (($deadlineS - $nowS) * 1000));
            $stay = $this->attempt($plan, $indexes, $deadlineS, $size, $stay, new SendRequest([
                'credential' => $this->mint->credential(),
                'messages' => array_map(fn (int $index) => $messages[$index], $indexes),
                'timeout_ms' => min($this->options->callTimeoutMs, $leftMs),
                'durability' => $durability,
                'reply_wait_ms' => $replyWaitMs ? min($replyWaitMs, $leftMs) : null,
            ]));
        }
        $results = array_map(fn (Message $message, SendEntry $entry) => $entry->result($message->id), $messages, $plan->entries);
        array_walk($results, fn (Result $result) => $this->options->metrics->sent($result));
        return $results;
    }

    /** Resent messages, over all calls. */
    public function retried(): int
    {
        return $this->retried;
    }

    public function close(): void
    {
        $this->pool->close();
    }

    /**
     * One call. Returns the proxy that has promised a slot at its rate limit: the retry has to go there.
     *
     * @param list<int> $indexes
     */
    private function attempt(
        SendPlan $plan,
        array $indexes,
        float $deadlineS,
        int $size,
        ?Endpoint $stay,
        SendRequest $request,
    ): ?Endpoint {
        foreach ($indexes as $index) {
            $this->retried += $plan->entries[$index]->attempts > 0 ? 1 : 0;
        }
        $timeoutS = max($request->timeout_ms, $request->reply_wait_ms ?? 0) / 1000 + Pool::ANSWER_MARGIN_S;
        $hello = new SendRequest(['credential' => $request->credential, 'messages' => []]);
        try {
            [$response, $endpoint] = $this->pool->call('send', $request, $timeoutS, $deadlineS, $size, $hello, $stay);
            if (count($response->results ?? []) !== count($indexes)) {
                throw new CallFailed('the answer has another number of results', true);
            }
        } catch (CallFailed | ContractException $failure) {
            foreach ($indexes as $index) {
                $plan->failed($index, $failure, Clock::nowS());
            }
            if ($failure instanceof ContractException) {
                $plan->hasOutcomes() ? $plan->end() : throw $failure;
            }
            return null;
        }
        $nowS = Clock::nowS();
        $leave = false;
        $stay = null;
        foreach ($indexes as $position => $index) {
            $answer = $response->results[$position];
            $plan->answered($index, $answer, $nowS);
            $leave = $leave || Action::of($answer->code) === Action::Elsewhere;
            $stay = $answer->code === Code::RATE_LIMITED ? $endpoint : $stay;
        }
        $leave ? $this->pool->setAside($endpoint) : $this->pool->praise($endpoint);
        return $stay;
    }

    /**
     * As many of the due messages as fit into one call, at least one, and about how many bytes they take.
     *
     * @param list<Message> $messages
     * @param list<int> $due
     * @return array{list<int>, int}
     */
    private function oneCall(array $messages, array $due): array
    {
        $size = 0;
        foreach ($due as $count => $index) {
            $more = self::size($messages[$index]);
            if ($count > 0 && ($count >= self::CALL_MESSAGES_MAX || $size + $more > self::CALL_BYTES_MAX)) {
                return [array_slice($due, 0, $count), $size];
            }
            $size += $more;
        }
        return [$due, $size];
    }

    /** @internal */
    public static function newId(): string
    {
        return bin2hex(random_bytes(16));
    }

    /** @internal */
    public function tell(string $sentence): void
    {
        ($this->options->tell)($sentence);
    }

    /**
     * About how many bytes the message takes in a request.
     *
     * @internal
     */
    public static function size(Message $message): int
    {
        $size = 200 + strlen($message->topic) + strlen($message->body ?? '') + strlen($message->key ?? '');
        foreach ($message->properties ?? [] as $name => $value) {
            $size += 8 + strlen($name) + strlen($value);
        }
        return $size;
    }
}
