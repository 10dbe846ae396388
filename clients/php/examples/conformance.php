<?php

/** Does what the conformance suite asks for: one JSON object per line on stdin and on stdout; clients/conformance/. */

use Penstock\Client\Consumer;
use Penstock\Client\Options;
use Penstock\Client\Producer;
use Penstock\Client\PullException;
use Penstock\Message;

require __DIR__ . '/../autoload.php';

final class Driver
{
    private Producer $producer;
    private Consumer $consumer;
    private string $topic;
    private array $pulled = [];

    public function open(array $asked): array
    {
        $tls = $asked['tls_ca'] ? ['cafile' => $asked['tls_ca']] : null;
        $options = new Options(deadlineMs: $asked['deadline_ms'], framed: !$asked['buffered'], tls: $tls);
        $who = [$asked['app'], $asked['key_id'], $asked['secret']];
        $this->topic = $asked['topic'];
        $this->producer = new Producer($asked['producer'], ...$who, options: $options);
        $this->consumer = new Consumer($asked['consumer'], ...$who, group: $asked['group'], topics: [$this->topic], options: $options);
        return [];
    }

    public function send(array $asked): array
    {
        $messages = array_map(fn (array $each) => new Message(['topic' => $this->topic] + $each), $asked['messages']);
        $shown = fn ($result) => [
            'code' => $result->code, 'id' => $result->id, 'queue' => $result->queue, 'offset' => $result->offset,
            'attempts' => $result->attempts,
        ];
        return ['results' => array_map($shown, $this->producer->sendAll($messages))];
    }

    public function pull(array $asked): array
    {
        $this->pulled = $this->consumer->pull(maxMessages: $asked['max'], waitMs: $asked['wait_ms']);
        $shown = fn ($each) => ['body' => $each->message->body, 'key' => $each->message->key, 'attempt' => $each->attempt];
        return ['deliveries' => array_map($shown, $this->pulled)];
    }

    public function settle(array $asked): array
    {
        $delivery = $this->pulled[$asked['index']];
        match ($asked['verdict']) {
            'done' => $this->consumer->done($delivery),
            'retry' => $this->consumer->retry($delivery, $asked['delay_ms'], $asked['reason']),
            'reject' => $this->consumer->reject($delivery, $asked['reason']),
            'extend' => $this->consumer->extend($delivery, $asked['delay_ms']),
        };
        return [];
    }

    public function flush(): array
    {
        $this->consumer->flush();
        return ['refused' => $this->consumer->acksRefused()];
    }

    public function close(): array
    {
        $this->producer->close();
        $this->consumer->close();
        return [];
    }
}

$driver = new Driver();
while (($line = fgets(STDIN)) !== false) {
    $asked = json_decode($line, true);
    try {
        $answer = $driver->{$asked['do']}($asked);
    } catch (PullException $error) {
        $answer = ['code' => $error->getCode()];
    }
    echo json_encode((object) $answer), "\n";
}
