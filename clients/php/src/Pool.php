<?php

declare(strict_types=1);

namespace Penstock\Client;

use Thrift\Exception\TApplicationException;
use Thrift\Exception\TException;

/**
 * Connections to several proxies, one each, as PHP runs one call at a time. A proxy that fails is set aside for a
 * growing pause; the others are used in turn.
 *
 * @internal
 */
final class Pool
{
    /**
     * Until a connection has shown a valid credential, proxies take frames of 64 KiB at most. A larger first call is
     * preceded by a small one.
     */
    private const UNTRUSTED_CALL_BYTES_MAX = 48 * 1024;

    /** An endpoint answers these for a call that it has not taken: of another service, or one that it refuses unread. */
    private const NOT_DONE = [TApplicationException::UNKNOWN_METHOD, TApplicationException::PROTOCOL_ERROR];

    /** A proxy answers by the call's timeout, which may be the deadline; its answer needs a moment to come back. */
    public const ANSWER_MARGIN_S = 0.5;

    /** @var non-empty-list<Endpoint> */
    private array $endpoints;
    private int $turn;

    /**
     * @param string|list<string> $endpoints
     * @param class-string $clientClass the generated client
     */
    public function __construct(string|array $endpoints, private readonly string $clientClass, private readonly Options $options)
    {
        $this->endpoints = Endpoint::parse($endpoints);
        $this->turn = mt_rand(0, count($this->endpoints) - 1); // short-lived processes would all begin at the first one
    }

    /** When the first proxy may be tried again (Clock's seconds); in the past when one is now. */
    public function usableAtS(): float
    {
        return min(array_map(fn (Endpoint $endpoint) => $endpoint->asideUntilS, $this->endpoints));
    }

    /**
     * One attempt at the next usable proxy.
     *
     * @param float $timeoutS for an answer
     * @param float $deadlineS by when (Clock's seconds) a connection is made; the answer is here ANSWER_MARGIN_S later
     * @param int $size about how many bytes the request takes
     * @param object $hello an empty request with the same credential, sent ahead when $size is too much for a new
     *        connection
     * @param ?Endpoint $stay the proxy to use unless it is set aside
     * @return array{object, Endpoint}
     * @throws CallFailed no answer of the contract; the proxy has been set aside
     * @throws ContractException that, and all endpoints have answered so last
     */
    public function call(
        string $method,
        object $request,
        float $timeoutS,
        float $deadlineS,
        int $size,
        object $hello,
        ?Endpoint $stay = null,
    ): array {
        $endpoint = $stay !== null && $stay->asideUntilS <= Clock::nowS() ? $stay : $this->choose();
        $beganS = Clock::nowS();
        $failure = null;
        try {
            return [$this->attempt($endpoint, $method, $request, $timeoutS, $deadlineS, $size, $hello), $endpoint];
        } catch (CallFailed | ContractException $failure) {
            throw $failure;
        } finally {
            $at = "$endpoint->host:$endpoint->port";
            $this->options->metrics->call($method, $at, Clock::nowS() - $beganS, $failure);
        }
    }

    private function attempt(
        Endpoint $endpoint,
        string $method,
        object $request,
        float $timeoutS,
        float $deadlineS,
        int $size,
        object $hello,
    ): object {
        $connection = $this->takeIdle($endpoint);
        $leftS = fn () => min($timeoutS, $deadlineS + self::ANSWER_MARGIN_S - Clock::nowS());
        $sent = false;
        try {
            [$host, $port] = [$endpoint->host, $endpoint->port];
            $connection ??= new Connection($host, $port, $this->clientClass, $this->options, $deadlineS);
            if ($size > self::UNTRUSTED_CALL_BYTES_MAX && !$connection->trusted) {
                $connection->call($method, $hello, $leftS());
            }
            $sent = true;
            $answer = $connection->call($method, $request, $leftS());
        } catch (TException $error) {
            $connection?->close();
            $reason = "$endpoint->host:$endpoint->port: " . $error->getMessage();
            $this->setAside($endpoint);
            if ($error instanceof TApplicationException) {
                $sent = $sent && !in_array($error->getCode(), self::NOT_DONE, true);
                $reason = "$endpoint->host:$endpoint->port refuses `$method`: " . $error->getMessage();
                if ($error->getCode() !== TApplicationException::INTERNAL_ERROR && $this->allForeign($endpoint)) {
                    throw new ContractException($reason, $sent);
                }
            }
            throw new CallFailed($reason, $sent);
        }
        $endpoint->idle = $connection;
        $endpoint->isForeign = false;
        return $answer;
    }

    /** Prefer other proxies for a pause that grows with each failure in a row. */
    public function setAside(Endpoint $endpoint): void
    {
        $endpoint->isForeign = false;
        $endpoint->failures++;
        $endpoint->asideUntilS = Clock::nowS() + $this->options->backoffS($endpoint->failures, Options::chance());
        $endpoint->idle?->close();
        $endpoint->idle = null;
    }

    /** Note what a proxy is that was set aside. Where all are, none waits: the next call ends as soon. */
    private function allForeign(Endpoint $endpoint): bool
    {
        $endpoint->isForeign = true;
        foreach ($this->endpoints as $each) {
            if (!$each->isForeign) {
                return false;
            }
        }
        foreach ($this->endpoints as $each) {
            $each->isForeign = false;
            $this->praise($each);
        }
        return true;
    }

    /** Reset the failures of a proxy that answered. */
    public function praise(Endpoint $endpoint): void
    {
        $endpoint->failures = 0;
        $endpoint->asideUntilS = 0.0;
    }

    public function close(): void
    {
        foreach ($this->endpoints as $endpoint) {
            $endpoint->idle?->close();
            $endpoint->idle = null;
        }
    }

    private function choose(): Endpoint
    {
        $nowS = Clock::nowS();
        $this->turn++;
        $count = count($this->endpoints);
        $best = $this->endpoints[$this->turn % $count];
        for ($step = 1; $step < $count; $step++) {
            $other = $this->endpoints[($this->turn + $step) % $count];
            if (max($other->asideUntilS, $nowS) < max($best->asideUntilS, $nowS)) {
                $best = $other;
            }
        }
        return $best;
    }

    private function takeIdle(Endpoint $endpoint): ?Connection
    {
        $connection = $endpoint->idle;
        $endpoint->idle = null;
        if ($connection !== null && $connection->usedAtS < Clock::nowS() - $this->options->idleMsMax / 1000) {
            $connection->close();
            return null;
        }
        return $connection;
    }
}
