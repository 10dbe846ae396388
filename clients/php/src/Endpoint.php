<?php

declare(strict_types=1);

namespace Penstock\Client;

/** @internal */
final class Endpoint
{
    public ?Connection $idle = null;
    public bool $isForeign = false; // its last answer was none of this contract
    public int $failures = 0;
    public float $asideUntilS = 0.0;

    public function __construct(public readonly string $host, public readonly int $port)
    {
    }

    /**
     * @param string|list<string> $endpoints "a:1,b:2" or ["a:1", "b:2"]; IPv6 as "[::1]:9090"
     * @return non-empty-list<self>
     */
    public static function parse(string|array $endpoints): array
    {
        $parsed = [];
        foreach (is_string($endpoints) ? explode(',', $endpoints) : $endpoints as $text) {
            if (!preg_match('/^(.+):(\d+)$/', trim($text), $parts)) {
                throw new \InvalidArgumentException("endpoint \"$text\": invalid: use HOST:PORT");
            }
            $parsed[] = new self($parts[1], (int) $parts[2]);
        }
        return $parsed;
    }
}
