<?php

declare(strict_types=1);

namespace Penstock\Client;

use Thrift\Exception\TTransportException;
use Thrift\Transport\TSocket;

/**
 * TSocket over TLS. Stock TSSLSocket would do, but Debian's php-thrift leaves it out; and it ignores the connect timeout.
 * The send timeout is that of connecting and the handshake together.
 *
 * @internal
 */
final class TlsSocket extends TSocket
{
    /** @param array<string, mixed> $tls the `ssl` options of a stream context */
    public function __construct(string $host, int $port, private readonly array $tls)
    {
        parent::__construct($host, $port);
    }

    public function open()
    {
        $untilS = Clock::nowS() + $this->sendTimeoutSec_ + $this->sendTimeoutUsec_ / 1e6;
        $context = stream_context_create([
            'ssl' => $this->tls + ['peer_name' => $this->host_, 'verify_peer' => true, 'verify_peer_name' => true],
            'socket' => ['tcp_nodelay' => true],
        ]);
        $stream = @stream_socket_client(
            "tcp://$this->host_:$this->port_",
            $number,
            $reason,
            $untilS - Clock::nowS(),
            STREAM_CLIENT_CONNECT,
            $context,
        );
        $reason = $stream === false ? ($reason ?: 'no connection') : self::handshake($stream, $untilS);
        if ($reason !== null) {
            throw new TTransportException("TLS to $this->host_:$this->port_: $reason", TTransportException::NOT_OPEN);
        }
        $this->handle_ = $stream;
    }

    public function setRecvTimeout($timeout)
    {
        parent::setRecvTimeout($timeout);
        if ($this->isOpen()) {
            stream_set_timeout($this->handle_, intdiv($timeout, 1000), $timeout % 1000 * 1000);
        }
    }

    /** Bytes of the protocol alone make a stream readable, too: the parent then waits for the stream's own timeout. */
    public function read($len)
    {
        $data = parent::read($len);
        if ($data === '' && stream_get_meta_data($this->handle_)['timed_out']) {
            throw new TTransportException("timed out reading $len bytes", TTransportException::TIMED_OUT);
        }
        return $data;
    }

    /**
     * @param resource $stream
     * @return ?string why it failed
     */
    private static function handshake($stream, float $untilS): ?string
    {
        stream_set_blocking($stream, false); // a blocking one has as much time again as connecting
        while (($done = @stream_socket_enable_crypto($stream, true, STREAM_CRYPTO_METHOD_TLS_CLIENT)) === 0) {
            [$readable, $writable, $others] = [[$stream], null, null];
            $leftS = max(0.0, $untilS - Clock::nowS());
            if (!@stream_select($readable, $writable, $others, (int) $leftS, (int) (fmod($leftS, 1) * 1e6))) {
                return 'timed out in the TLS handshake';
            }
        }
        stream_set_blocking($stream, true);
        return $done ? null : (error_get_last()['message'] ?? 'the TLS handshake failed');
    }
}
