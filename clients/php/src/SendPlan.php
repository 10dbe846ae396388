<?php

declare(strict_types=1);

namespace Penstock\Client;

use Penstock\Code;
use Penstock\Message;
use Penstock\SendResult;

/**
 * The retry plan of a batch: the messages to send next, and when. No I/O.
 *
 * Invariant: a message whose outcome was once unknown is reported as unknown (TIMEOUT) unless a later answer tells
 * that it is stored. A later refusal applies only to that later attempt.
 *
 * A message waits while an earlier one of its key does: so a key keeps its order over retries. It holds because a proxy
 * that refuses a message stores none of its key's later messages of the same call.
 *
 * @internal
 */
final class SendPlan
{
    /** @var array<int, SendEntry> */
    public array $entries = [];
    /** @var array<int, string> topic and key of each open message; without a key one of its own */
    private array $open = [];
    /** Drawn once: messages refused together are sent again together. */
    private readonly float $chance;

    /**
     * @param list<Message> $messages
     * @param bool $isRequest a reply is waited for
     */
    public function __construct(
        array $messages,
        float $nowS,
        private readonly Options $options,
        private readonly bool $isRequest,
    ) {
        $this->chance = Options::chance();
        foreach ($messages as $index => $message) {
            $this->entries[] = new SendEntry($nowS);
            $this->open[$index] = $message->key === null ? "\n$index" : "$message->topic\n$message->key";
        }
    }

    public function finished(): bool
    {
        return $this->open === [];
    }

    /** Whether a message was answered for good, or may be stored. */
    public function hasOutcomes(): bool
    {
        foreach ($this->entries as $entry) {
            if ($entry->settled || $entry->maybeStored) {
                return true;
            }
        }
        return false;
    }

    /** Make no further attempt. */
    public function end(): void
    {
        $this->open = [];
    }

    /** @return list<int> */
    public function due(float $nowS): array
    {
        $due = $held = [];
        foreach ($this->open as $index => $key) {
            if ($this->entries[$index]->dueS <= $nowS && !isset($held[$key])) {
                $due[] = $index;
            } else {
                $held[$key] = true;
            }
        }
        return $due;
    }

    public function nextDueS(): float
    {
        $firsts = [];
        foreach ($this->open as $index => $key) {
            $firsts[$key] ??= $this->entries[$index]->dueS;
        }
        return min($firsts);
    }

    public function answered(int $index, SendResult $answer, float $nowS): void
    {
        $entry = $this->entries[$index];
        $entry->attempts++;
        $entry->code = $answer->code;
        $entry->error = $answer->error;
        $entry->answer = $answer;
        $action = Action::of($answer->code);
        if ($entry->maybeStored && in_array($action, [Action::Refused, Action::Later, Action::Elsewhere], true)) {
            // What it says, also "not stored", is about this attempt alone.
            $told = (string) $answer->error === '' ? '' : "; the last one was answered: $answer->error";
            $entry->error = "an earlier attempt may have stored it$told";
            $entry->code = $action === Action::Refused ? Code::TIMEOUT : $answer->code;
        }
        if ($this->isRequest && $answer->code === Code::DUPLICATE && $answer->reply === null) {
            $entry->code = Code::TIMEOUT;
            $entry->error = 'stored by an earlier attempt, whose reply cannot be had';
        }
        switch ($action) {
            case Action::Later:
            case Action::Unknown:
                $backoffS = $this->options->backoffS($entry->attempts, $this->chance);
                $entry->dueS = $nowS + Options::pauseS($answer->code, $answer->retry_after_ms, $backoffS);
                $entry->maybeStored = $entry->maybeStored || $action === Action::Unknown;
                break;
            case Action::Elsewhere:
                $entry->dueS = $nowS;
                break;
            default:
                $entry->settled = true;
                unset($this->open[$index]);
        }
    }

    /** No answer came. The message is due again at once: the pool has set that proxy aside. */
    public function failed(int $index, CallFailed | ContractException $failure, float $nowS): void
    {
        $entry = $this->entries[$index];
        $entry->attempts += (int) $failure->sent;
        $entry->maybeStored = $entry->maybeStored || $failure->sent;
        $entry->error = $failure->getMessage();
        $entry->dueS = $nowS;
    }
}
