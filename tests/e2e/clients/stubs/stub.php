<?php

/**
 * Sends three messages, pulls and acknowledges them: generated code and Apache Thrift's PHP library, nothing of ours.
 *
 *     stub.php framed|buffered PRODUCER CONSUMER APP KEY_ID TOPIC GROUP        (secret: PENSTOCK_SECRET)
 *
 * Whether the thrift_protocol extension works underneath is php's command line.
 */

use Penstock\Ack;
use Penstock\ConsumerClient;
use Penstock\Credential;
use Penstock\Message;
use Penstock\ProducerClient;
use Penstock\PullRequest;
use Penstock\SendRequest;
use Thrift\Protocol\TBinaryProtocolAccelerated;
use Thrift\Transport\TBufferedTransport;
use Thrift\Transport\TFramedTransport;
use Thrift\Transport\TSocket;

spl_autoload_register(function (string $class): void {
    $roots = ['Thrift\\' => '/usr/lib/php/', 'Penstock\\' => __DIR__ . '/../../../../clients/php/gen/Penstock/'];
    foreach ($roots as $prefix => $root) {
        if (str_starts_with($class, $prefix)) {
            require $root . str_replace('\\', '/', substr($class, strlen($prefix))) . '.php';
        }
    }
});

const BODIES = ['one', "\x00\xff\n\xfe", ''];

function check(bool $held, string $what): void
{
    if (!$held) {
        fwrite(STDERR, "wrong: $what\n");
        exit(1);
    }
}

[, $transport, $producerAt, $consumerAt, $app, $keyId, $topic, $group] = $argv;

function connect(string $class, string $at, string $transport): object
{
    [$host, $port] = explode(':', $at);
    $socket = new TSocket($host, (int) $port);
    $socket->setSendTimeout(5_000);
    $socket->setRecvTimeout(15_000);
    $wrapped = $transport === 'framed' ? new TFramedTransport($socket) : new TBufferedTransport($socket);
    $wrapped->open();
    return new $class(new TBinaryProtocolAccelerated($wrapped));
}

$nowMs = (int) (microtime(true) * 1000);
$credential = new Credential([
    'app' => $app,
    'key_id' => $keyId,
    'issued_at_ms' => $nowMs,
    'signature' => hash_hmac('sha256', "penstock/1\n$app\n$keyId\n$nowMs", getenv('PENSTOCK_SECRET'), true),
]);

$messages = [];
foreach (BODIES as $number => $body) {
    $messages[] = new Message(['topic' => $topic, 'key' => 'k', 'body' => $body, 'properties' => ['number' => "$number"]]);
}
$messages[2]->id = "$topic-third";
$sender = connect(ProducerClient::class, $producerAt, $transport);
$results = $sender->send(new SendRequest(['credential' => $credential, 'messages' => $messages]))->results;
check(array_column($results, 'code') === [0, 0, 0], 'send ' . json_encode($results));
check(count(array_unique(array_column($results, 'id'))) === 3, 'send ids');
check($results[2]->id === $messages[2]->id, 'the id that was sent along');
check(count(array_unique(array_column($results, 'queue'))) === 1, 'one key, one queue');
check(array_column($results, 'offset') === [0, 1, 2], 'offsets');

$receiver = connect(ConsumerClient::class, $consumerAt, $transport);
$who = ['credential' => $credential, 'group' => $group, 'topics' => [$topic]];
$pulled = [];
while (count($pulled) < 3) {
    $response = $receiver->pull(new PullRequest($who + ['max_messages' => 10, 'wait_ms' => 10_000]));
    check($response->code === 0 && $response->deliveries, "pull: code $response->code, $response->error");
    array_push($pulled, ...$response->deliveries);
}
foreach ($pulled as $number => $delivery) {
    $result = $results[$number];
    $message = $delivery->message;
    check([$delivery->id, $delivery->queue, $delivery->offset] === [$result->id, $result->queue, $result->offset], "place of $number");
    check($delivery->attempt === 1 && abs($delivery->stored_at_ms - $nowMs) < 60_000, "attempt and time of $number");
    check([$message->topic, $message->key] === [$topic, 'k'], "topic and key of $number");
    check(($message->body ?? '') === BODIES[$number], "body of $number");
    check($message->properties === ['number' => "$number"], "properties of $number");
}

$acks = array_map(fn ($delivery) => new Ack(['receipt' => $delivery->receipt]), $pulled);
$last = $receiver->pull(new PullRequest($who + ['max_messages' => 0, 'acks' => $acks]));
check($last->code === 0 && array_column($last->ack_results, 'code') === [0, 0, 0], "last pull: $last->code, $last->error");
check($last->deliveries === [], 'the last pull takes nothing');
echo extension_loaded('thrift_protocol') ? "ok with the extension\n" : "ok plain\n";
