<?php

/**
 * Streams a file, one message per line, and reports progress as JSON lines.
 *
 * Line i has key "k<i mod N>", property line=i, and the line's bytes with its newline as body.
 */

use Penstock\Client\PenstockException;
use Penstock\Client\Producer;
use Penstock\Client\Result;
use Penstock\Message;

require __DIR__ . '/arguments.php';

/** Counts, and prints once per second and at the end. */
final class Report
{
    public int $sent = 0;
    private float $startedS;
    private float $printedS;
    /** @var list<float> */
    private array $callsMs = [];

    public function __construct()
    {
        $this->startedS = $this->printedS = hrtime(true) / 1e9;
    }

    public function called(int $messages, float $tookMs, int $retried): void
    {
        $this->sent += $messages;
        $this->callsMs[] = $tookMs;
        if (hrtime(true) / 1e9 - $this->printedS >= 1) {
            $this->print($retried);
        }
    }

    public function print(int $retried): void
    {
        $this->printedS = hrtime(true) / 1e9;
        $ordered = $this->callsMs ?: [0.0];
        sort($ordered);
        echo json_encode([
            'sent' => $this->sent,
            'retried' => $retried,
            'seconds' => round($this->printedS - $this->startedS, 3),
            'p50_ms' => round($ordered[intdiv(count($ordered), 2)], 3),
            'p99_ms' => round($ordered[intdiv(count($ordered) * 99, 100)], 3),
        ]), "\n";
    }
}

/**
 * @param resource $file
 * @return iterable<list<Message>>
 */
function batches($file, string $topic, int $keys, int $size): iterable
{
    $batch = [];
    for ($number = 0; ($line = fgets($file)) !== false; $number++) {
        $batch[] = new Message([
            'topic' => $topic,
            'key' => 'k' . $number % $keys,
            'body' => $line,
            'properties' => ['line' => (string) $number],
        ]);
        if (count($batch) >= $size) {
            yield $batch;
            $batch = [];
        }
    }
    if ($batch) {
        yield $batch;
    }
}

$given = arguments(['file'], ['keys', 'batch']);
$file = @fopen($given['file'], 'rb') ?: fail("cannot read {$given['file']}");
$producer = new Producer($given['endpoints'], $given['app'], $given['key-id'], secret(), options($given));
$report = new Report();
foreach (batches($file, $given['topic'], (int) ($given['keys'] ?? 16), (int) ($given['batch'] ?? 100)) as $batch) {
    $began = hrtime(true);
    try {
        $results = $producer->sendAll($batch);
    } catch (PenstockException $error) {
        fail($error->getMessage());
    }
    $lost = array_values(array_filter($results, fn (Result $result) => !$result->ok()));
    $report->called(count($results) - count($lost), (hrtime(true) - $began) / 1e6, $producer->retried());
    if ($lost) {
        $report->print($producer->retried());
        fail(count($lost) . " not acknowledged; the first: code {$lost[0]->code}: {$lost[0]->error}");
    }
}
$report->print($producer->retried());
$producer->close();
