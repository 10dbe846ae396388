<?php

declare(strict_types=1);

namespace Penstock\Client;

use Thrift\Protocol\TBinaryProtocolAccelerated;
use Thrift\Transport\TBufferedTransport;
use Thrift\Transport\TFramedTransport;
use Thrift\Transport\TSocket;

/**
 * One socket with one call at a time. After any failure it must be closed: a late answer would go to the next call.
 *
 * TBinaryProtocolAccelerated uses the thrift_protocol extension where it is loaded and is plain PHP otherwise.
 *
 * @internal
 */
final class Connection
{
    public bool $trusted = false;
    public float $usedAtS;
    private TSocket $socket;
    private object $client;

    /**
     * @param class-string $clientClass the generated client
     * @param float $deadlineS by when it is connected, with its TLS handshake
     */
    public function __construct(string $host, int $port, string $clientClass, Options $options, float $deadlineS)
    {
        $this->socket = $options->tls === null ? new TSocket($host, $port) : new TlsSocket($host, $port, $options->tls);
        $leftMs = (int) (($deadlineS - Clock::nowS()) * 1000);
        $this->setTimeout(max(1, min($options->connectTimeoutMs, $leftMs))); // TSocket also connects with it
        $transport = $options->framed
            ? new TFramedTransport($this->socket)
            : new TBufferedTransport($this->socket, 65_536, 65_536);
        $this->socket->open();
        $this->client = new $clientClass(new TBinaryProtocolAccelerated($transport));
        $this->usedAtS = Clock::nowS();
    }

    public function call(string $method, object $request, float $timeoutS): object
    {
        $this->setTimeout(max(1, (int) ceil($timeoutS * 1000)));
        $answer = $this->client->$method($request);
        $this->trusted = true;
        $this->usedAtS = Clock::nowS();
        return $answer;
    }

    private function setTimeout(int $ms): void
    {
        $this->socket->setSendTimeout($ms);
        $this->socket->setRecvTimeout($ms);
    }

    public function close(): void
    {
        if ($this->socket->isOpen()) {
            $this->socket->close();
        }
    }
}
