<?php

/**
 * Sends one message to each topic per call, again and again, until its standard input ends; prints the id of each that is OK.
 *
 *     steady_producer.php PRODUCER APP KEY_ID NAME KEYS TOPIC…        (secret: PENSTOCK_SECRET)
 *
 * Message N of a topic has the key NAME.k<N mod KEYS>, and NAME.k<N mod KEYS>.<N> as its id and its body. The last line is
 * "retried COUNT".
 */

use Penstock\Client\Options;
use Penstock\Client\Producer;
use Penstock\Message;

require __DIR__ . '/../../../clients/php/autoload.php';

[, $endpoint, $app, $keyId, $name, $keys] = $argv;
$topics = array_slice($argv, 6);
$producer = new Producer($endpoint, $app, $keyId, getenv('PENSTOCK_SECRET'), new Options(deadlineMs: 60_000, callTimeoutMs: 10_000));
stream_set_blocking(STDIN, false);
for ($number = 0; !feof(STDIN); $number++) {
    fread(STDIN, 1);
    $key = "$name.k" . $number % (int) $keys;
    $id = sprintf('%s.%06d', $key, $number);
    $messages = array_map(fn ($topic) => new Message(['topic' => $topic, 'key' => $key, 'id' => "$topic/$id", 'body' => $id]), $topics);
    foreach ($producer->sendAll($messages) as $result) {
        if (!$result->ok()) {
            fwrite(STDERR, "$result->id: code $result->code: $result->error\n");
            exit(1);
        }
        echo "$result->id\n";
    }
    flush();
    usleep(100_000);
}
echo 'retried ', $producer->retried(), "\n";
