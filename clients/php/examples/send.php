<?php

/** Sends each argument as one message: send.php --endpoints … --app … --key-id … --topic … [--key KEY] BODY… */

use Penstock\Client\PenstockException;
use Penstock\Client\Producer;
use Penstock\Message;

require __DIR__ . '/arguments.php';

$given = arguments([], ['key'], $rest);
$producer = new Producer($given['endpoints'], $given['app'], $given['key-id'], secret(), options($given));
foreach (array_slice($argv, $rest) as $body) {
    try {
        $result = $producer->send(new Message(['topic' => $given['topic'], 'key' => $given['key'] ?? null, 'body' => $body]));
    } catch (PenstockException $error) {
        fail($error->getMessage());
    }
    echo "$result->id\t$result->queue\t$result->offset\n";
}
$producer->close();
