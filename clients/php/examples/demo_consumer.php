<?php

/**
 * Pulls until --count different lines have come, or SIGTERM; prints a line per delivery and acknowledges all.
 *
 * A line is: line number, key, queue, offset, attempt, SHA-256 of the body in hex; separated by tabs. A message that is delivered
 * twice is printed twice and counted once.
 */

use Penstock\Client\Consumer;
use Penstock\Client\PenstockException;

require __DIR__ . '/arguments.php';

$given = arguments(['group', 'count'], ['max']);
$stopped = false;
if (function_exists('pcntl_async_signals')) {
    pcntl_async_signals(true);
    foreach ([SIGTERM, SIGINT] as $signal) {
        pcntl_signal($signal, function () use (&$stopped): void {
            $stopped = true;
        });
    }
}
$consumer = new Consumer(
    $given['endpoints'],
    $given['app'],
    $given['key-id'],
    secret(),
    $given['group'],
    [$given['topic']],
    options: options($given),
);
$seen = [];
try {
    while (count($seen) < (int) $given['count'] && !$stopped) {
        $lines = '';
        foreach ($consumer->pull((int) ($given['max'] ?? 256), 1_000) as $delivery) {
            $message = $delivery->message;
            $line = $message->properties['line'] ?? '';
            $digest = hash('sha256', $message->body ?? '');
            $lines .= "$line\t$message->key\t$delivery->queue\t$delivery->offset\t$delivery->attempt\t$digest\n";
            $seen[$line] = true;
            $consumer->done($delivery);
        }
        echo $lines;
    }
    $consumer->close();
} catch (PenstockException $error) {
    fail($error->getMessage());
}
