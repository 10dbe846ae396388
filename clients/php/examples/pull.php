<?php

/** Prints messages until none has come for --wait-ms, and acknowledges them. */

use Penstock\Client\Consumer;
use Penstock\Client\PenstockException;

require __DIR__ . '/arguments.php';

$given = arguments(['group'], ['wait-ms']);
$consumer = new Consumer(
    $given['endpoints'],
    $given['app'],
    $given['key-id'],
    secret(),
    $given['group'],
    [$given['topic']],
    options: options($given),
);
try {
    while ($deliveries = $consumer->pull(waitMs: (int) ($given['wait-ms'] ?? 1_000))) {
        foreach ($deliveries as $delivery) {
            $message = $delivery->message;
            echo "$delivery->queue\t$delivery->offset\t$delivery->attempt\t$message->key\t$message->body\n";
            $consumer->done($delivery);
        }
    }
    $consumer->close();
} catch (PenstockException $error) {
    fail($error->getMessage());
}
