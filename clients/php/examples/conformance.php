<?php

/** Does what the conformance suite asks for: one JSON object per line on stdin and on stdout; clients/conformance/. */

use Penstock\Client\Batching;
use Penstock\Client\BatchingProducer;
use Penstock\Client\Consumer;
use Penstock\Client\ContractException;
use Penstock\Client\Metrics;
use Penstock\Client\Options;
use Penstock\Client\Producer;
use Penstock\Client\PullException;
use Penstock\Client\Result;
use Penstock\Client\SendException;
use Penstock\Delivery;
use Penstock\Message;
use Penstock\Operation;
use Penstock\Verdict;

require __DIR__ . '/../autoload.php';

/** Counts what the hook is told: calls, failed calls, sent messages, handled messages. */
final class Told extends Metrics
{
    public array $counts = [0, 0, 0, 0];

    public function call(string $method, string $endpoint, float $tookS, ?\Exception $failure): void
    {
        $this->counts[0]++;
        $this->counts[1] += $failure === null ? 0 : 1;
    }

    public function sent(Result $result): void
    {
        $this->counts[2]++;
    }

    public function handled(Delivery $delivery, int $verdict, float $tookS): void
    {
        $this->counts[3]++;
    }
}

final class Driver
{
    private Producer $producer;
    private Consumer $consumer;
    private Told $told;
    private string $topic;
    private array $pulled = [];

    public function open(array $asked): array
    {
        $this->told = new Told();
        $options = new Options(
            deadlineMs: $asked['deadline_ms'],
            callTimeoutMs: $asked['call_timeout_ms'],
            framed: !$asked['buffered'],
            tls: $asked['tls_ca'] ? ['cafile' => $asked['tls_ca']] : null,
            metrics: $this->told,
        );
        $who = [$asked['app'], $asked['key_id'], $asked['secret']];
        $this->topic = $asked['topic'];
        $this->producer = new Producer($asked['producer'], ...$who, options: $options);
        $what = ['group' => $asked['group'], 'topics' => [$this->topic], 'invisibleMs' => $asked['lease_ms'] ?: null];
        $this->consumer = new Consumer($asked['consumer'], ...$who, ...$what, options: $options);
        return [];
    }

    public function send(array $asked): array
    {
        $shown = fn ($result) => [
            'code' => $result->code, 'id' => $result->id, 'queue' => $result->queue, 'offset' => $result->offset,
            'attempts' => $result->attempts, 'reply' => $result->reply ? bin2hex($result->reply->body) : null,
            'reason' => $result->error,
        ];
        $messages = array_map($this->message(...), $asked['messages']);
        $results = $this->producer->sendAll($messages, replyWaitMs: $asked['reply_wait_ms'] ?: null);
        return ['results' => array_map($shown, $results)];
    }

    public function batch(array $asked): array
    {
        $how = new Batching($asked['linger_ms'], $asked['bytes'], $asked['count']);
        $results = [];
        $batching = new BatchingProducer($this->producer, $how, function (Message $message, Result $result) use (&$results) {
            $results[] = ['code' => $result->code, 'id' => $result->id, 'attempts' => $result->attempts];
        });
        array_map(fn (array $each) => $batching->send($this->message($each)), $asked['messages']);
        if ($asked['close_ms'] < 0) { // else its deadline would be that of what still waits
            $batching->flush();
        }
        $batching->close(max(0, $asked['close_ms']));
        return ['results' => $results];
    }

    public function pull(array $asked): array
    {
        $this->pulled = $this->consumer->pull(maxMessages: $asked['max'], waitMs: $asked['wait_ms']);
        $shown = fn (Delivery $each) => [
            'body' => bin2hex($each->message->body ?? ''), 'key' => $each->message->key, 'tag' => $each->message->tag,
            'properties' => $each->message->properties, 'id' => $each->id, 'attempt' => $each->attempt,
            'asked' => $each->reply_token !== null,
        ];
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

    public function reply(array $asked): array
    {
        $this->producer->reply($this->pulled[$asked['index']], hex2bin($asked['body']));
        return [];
    }

    public function run(array $asked): array
    {
        $handled = [];
        $handle = function (Delivery $delivery) use (&$handled, $asked): int {
            usleep($asked['handle_ms'] * 1_000);
            $handled[] = bin2hex($delivery->message->body ?? '');
            return match ($asked['verdict']) {
                'fail' => throw new RuntimeException('the handler failed'),
                'fault' => strlen([]), // a TypeError
                'reject' => Verdict::REJECT,
                default => Verdict::DONE,
            };
        };
        $this->consumer->run($handle, function () use (&$handled, $asked): bool {
            return count($handled) >= $asked['count'];
        });
        return ['handled' => $handled];
    }

    public function flush(array $asked): array
    {
        $this->consumer->flush();
        return ['refused' => $this->consumer->acksRefused(), 'told' => $this->told->counts];
    }

    public function close(array $asked): array
    {
        $this->producer->close();
        $this->consumer->close();
        return [];
    }

    private function message(array $given): Message
    {
        $body = str_repeat(hex2bin($given['body']), $given['times'] ?? 1);
        $operation = ($given['cancel'] ?? false) ? Operation::CANCEL : null;
        return new Message(['topic' => $this->topic, 'body' => $body, 'operation' => $operation] + $given);
    }
}

$driver = new Driver();
while (($line = fgets(STDIN)) !== false) {
    $asked = json_decode($line, true);
    try {
        $answer = $driver->{$asked['do']}($asked);
    } catch (PullException | SendException $error) {
        $answer = ['code' => $error->getCode()];
    } catch (ContractException) {
        $answer = ['code' => -1];
    }
    echo json_encode((object) $answer), "\n";
}
