<?php

declare(strict_types=1);

namespace Penstock\Client;

use Penstock\Code;
use Penstock\SendResult;

/**
 * The state of one message of a batch.
 *
 * @internal
 */
final class SendEntry
{
    public int $attempts = 0;
    public bool $settled = false;
    public bool $maybeStored = false;
    public int $code = Code::UNAVAILABLE;
    public ?string $error = 'no proxy could be reached before the deadline';
    public ?SendResult $answer = null;

    public function __construct(public float $dueS)
    {
    }

    public function result(string $id): Result
    {
        if (!$this->settled) {
            return new Result($this->maybeStored ? Code::TIMEOUT : $this->code, $id, error: $this->error, attempts: $this->attempts);
        }
        $answer = $this->answer;
        return new Result(
            $this->code,
            $answer->id ?? $id,
            $answer->queue,
            $answer->offset,
            $this->error,
            $answer->reply,
            $this->attempts,
        );
    }
}
