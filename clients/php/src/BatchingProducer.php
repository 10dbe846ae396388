<?php

declare(strict_types=1);

namespace Penstock\Client;

use Penstock\Message;

/**
 * Collects single messages into calls. PHP has no second thread: a call is made by `send` when enough waits or the
 * oldest message has waited for the linger, by `flush` and by `close`. So the buffer is never full, and what waits when
 * nobody calls again goes with `close`, which the end of the script calls.
 *
 * Messages of one key keep their order, over retries too. A message must not be changed before it is sent.
 */
final class BatchingProducer
{
    /** @var list<Message> */
    private array $waiting = [];
    private int $bytes = 0;
    private float $sinceS = 0.0;
    private bool $isClosed = false;

    /**
     * @param ?\Closure(Message, Result): void $told called with each message's outcome; null: a failure is told by the
     *        producer's option `tell`
     */
    public function __construct(
        private readonly Producer $producer,
        private readonly Batching $how = new Batching(),
        private readonly ?\Closure $told = null,
    ) {
    }

    /** At the end of the script, also by `exit`; not after a fatal error. */
    public function __destruct()
    {
        try {
            $this->close();
        } catch (\Exception $error) {
            $this->producer->tell('a batch was not sent: ' . $error->getMessage());
        }
    }

    /**
     * Take a message; when it is time, send all that waits and return when it is answered.
     *
     * @throws ClosedException after `close`
     * @throws ContractException no endpoint is a producer proxy, and nothing is stored
     */
    public function send(Message $message): void
    {
        if ($this->isClosed) {
            throw new ClosedException('the producer is closed');
        }
        $message->id ??= Producer::newId();
        $nowS = Clock::nowS();
        $this->sinceS = $this->waiting === [] ? $nowS : $this->sinceS;
        $this->waiting[] = $message;
        $this->bytes += Producer::size($message);
        $isEnough = $this->bytes >= $this->how->bytes || count($this->waiting) >= min($this->how->messages, Producer::CALL_MESSAGES_MAX);
        if ($isEnough || ($nowS - $this->sinceS) * 1000 >= $this->how->lingerMs) {
            $this->flush();
        }
    }

    /**
     * Send what waits; the results, in order.
     *
     * @param ?int $deadlineMs for everything, retries included; null: the producer's option
     * @return list<Result>
     * @throws ContractException no endpoint is a producer proxy, and nothing is stored
     */
    public function flush(?int $deadlineMs = null): array
    {
        [$messages, $this->waiting, $this->bytes] = [$this->waiting, [], 0];
        $results = $messages === [] ? [] : $this->producer->sendAll($messages, deadlineMs: $deadlineMs);
        foreach ($results as $position => $result) {
            if ($this->told !== null) {
                ($this->told)($messages[$position], $result);
            } elseif (!$result->ok()) {
                $this->producer->tell((new SendException($result))->getMessage());
            }
        }
        return $results;
    }

    /** Send what waits, until the deadline at most; later messages are refused. */
    public function close(int $deadlineMs = 10_000): void
    {
        $this->isClosed = true;
        $this->flush($deadlineMs);
    }
}
