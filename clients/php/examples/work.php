<?php

/**
 * Handles messages by `Consumer::run`, each for --handle-ms, until SIGTERM; prints one line per handled message.
 *
 * A line is: topic, queue, offset, attempt; separated by tabs. The last line is a JSON object of counts.
 */

use Penstock\Client\Consumer;
use Penstock\Client\PenstockException;
use Penstock\Delivery;

require __DIR__ . '/arguments.php';

$given = arguments(['group'], ['handle-ms', 'lease-ms', 'outage-ms']);
$stopped = false;
pcntl_async_signals(true);
foreach ([SIGTERM, SIGINT] as $signal) {
    pcntl_signal($signal, function () use (&$stopped): void {
        $stopped = true;
    });
}
$consumer = new Consumer(
    $given['endpoints'],
    $given['app'],
    $given['key-id'],
    secret(),
    $given['group'],
    explode(',', $given['topic']),
    isset($given['lease-ms']) ? (int) $given['lease-ms'] : null,
    options($given, (int) ($given['outage-ms'] ?? 600_000)),
);
$handled = 0;
$handle = function (Delivery $delivery) use ($given, $consumer, &$handled): void {
    $endNs = hrtime(true) + (int) ($given['handle-ms'] ?? 0) * 1_000_000;
    while (hrtime(true) < $endNs) { // work in steps, as a handler that may take longer than half of a lease has to
        usleep((int) min(100_000, max(1, ($endNs - hrtime(true)) / 1_000)));
        $consumer->heartbeat();
    }
    echo "{$delivery->message->topic}\t$delivery->queue\t$delivery->offset\t$delivery->attempt\n";
    $handled++;
};
try {
    $consumer->run($handle, function () use (&$stopped): bool {
        return $stopped;
    });
    $consumer->close();
} catch (PenstockException $error) {
    fail($error->getMessage());
}
echo json_encode(['handled' => $handled, 'refused' => $consumer->acksRefused()]), "\n";
