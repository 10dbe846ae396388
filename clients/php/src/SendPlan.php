<?php

namespace Penstock\Client;

use Penstock\SendResult;

/**
 * The retry plan of a batch: the messages to send next, and when. No I/O.
 *
 * Invariant: a message whose outcome was once unknown is reported as unknown (TIMEOUT) unless a later answer settles
 * it. A later "not stored" applies only to that later attempt.
 *
 * @internal
 */
final class SendPlan
{
    /** @var array<int, SendEntry> */
    public array $entries = [];
    /** @var array<int, true> */
    private array $open = [];
    /** Drawn once: messages refused together are sent again together. */
    private readonly float $chance;

    public function __construct(int $count, float $nowS, private readonly Options $options)
    {
        $this->chance = Options::chance();
        for ($index = 0; $index < $count; $index++) {
            $this->entries[] = new SendEntry($nowS);
            $this->open[$index] = true;
        }
    }

    public function finished(): bool
    {
        return $this->open === [];
    }

    /** @return list<int> */
    public function due(float $nowS): array
    {
        $due = array_filter(array_keys($this->open), fn (int $index) => $this->entries[$index]->dueS <= $nowS);
        return array_values($due);
    }

    public function nextDueS(): float
    {
        return min(array_map(fn (int $index) => $this->entries[$index]->dueS, array_keys($this->open)));
    }

    public function answered(int $index, SendResult $answer, float $nowS): void
    {
        $entry = $this->entries[$index];
        $entry->attempts++;
        $entry->code = $answer->code;
        $entry->error = $answer->error;
        $entry->answer = $answer;
        $action = Action::of($answer->code);
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
    public function failed(int $index, CallFailed $failure, float $nowS): void
    {
        $entry = $this->entries[$index];
        $entry->attempts += (int) $failure->sent;
        $entry->maybeStored = $entry->maybeStored || $failure->sent;
        $entry->error = $failure->getMessage();
        $entry->dueS = $nowS;
    }
}
