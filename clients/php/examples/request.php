<?php

/** Asks with each argument and prints the replies: request.php --endpoints … --app … --key-id … --topic … [--wait-ms N] BODY… */

use Penstock\Client\PenstockException;
use Penstock\Client\Producer;
use Penstock\Message;

require __DIR__ . '/arguments.php';

$given = arguments([], ['wait-ms'], $rest);
$producer = new Producer($given['endpoints'], $given['app'], $given['key-id'], secret(), options($given));
foreach (array_slice($argv, $rest) as $body) {
    try {
        $reply = $producer->request(new Message(['topic' => $given['topic'], 'body' => $body]), (int) ($given['wait-ms'] ?? 5_000));
    } catch (PenstockException $error) {
        fail($error->getMessage());
    }
    echo "$reply->body\n";
}
$producer->close();
