<?php

declare(strict_types=1);

namespace Penstock\Client;

use Thrift\Exception\TTransportException;
use Thrift\Transport\TSocket;

/**
 * TSocket over TLS. Stock TSSLSocket would do, but Debian's php-thrift leaves it out; and it ignores the connect timeout.
 *
 * @internal
 */
final class TlsSocket extends TSocket
{
    /** @param array<string, mixed> $tls the `ssl` options of a stream context */
    public function __construct(string $host, int $port, private readonly array $tls, private readonly int $connectTimeoutMs)
    {
        parent::__construct($host, $port);
    }

    public function open()
    {
        $context = stream_context_create([
            'ssl' => $this->tls + ['peer_name' => $this->host_, 'verify_peer' => true, 'verify_peer_name' => true],
            'socket' => ['tcp_nodelay' => true],
        ]);
        $stream = @stream_socket_client(
            "tls://$this->host_:$this->port_",
            $number,
            $reason,
            $this->connectTimeoutMs / 1000,
            STREAM_CLIENT_CONNECT,
            $context,
        );
        if ($stream === false) {
            $reason = $reason ?: (error_get_last()['message'] ?? 'the TLS handshake failed');
            throw new TTransportException("TLS to $this->host_:$this->port_: $reason", TTransportException::NOT_OPEN);
        }
        $this->handle_ = $stream;
    }
}
