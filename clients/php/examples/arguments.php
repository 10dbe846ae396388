<?php

/** The command line that all example programs share. The secret comes from the environment, where `ps` does not show it. */

use Penstock\Client\Options;

require_once __DIR__ . '/../autoload.php';

/**
 * @param list<string> $needed
 * @param list<string> $optional
 * @return array<string, string|false>
 */
function arguments(array $needed, array $optional = [], ?int &$rest = null): array
{
    $needed = array_merge(['endpoints', 'app', 'key-id', 'topic'], $needed);
    $names = array_merge($needed, ['deadline-ms', 'tls-ca'], $optional);
    $given = getopt('', array_merge(['buffered'], array_map(fn ($name) => "$name:", $names)), $rest);
    foreach ($needed as $name) {
        if (!isset($given[$name])) {
            fail("--$name is missing", 2);
        }
    }
    return $given;
}

function secret(): string
{
    return getenv('PENSTOCK_SECRET') ?: fail("set PENSTOCK_SECRET to the application's secret", 2);
}

/** @param array<string, string|false> $given */
function options(array $given, int $outageMsMax = 600_000): Options
{
    return new Options(
        deadlineMs: (int) ($given['deadline-ms'] ?? 30_000),
        framed: !isset($given['buffered']),
        outageMsMax: $outageMsMax,
        tls: isset($given['tls-ca']) ? ['cafile' => $given['tls-ca']] : null,
    );
}

function fail(string $reason, int $status = 1): never
{
    fwrite(STDERR, "$reason\n");
    exit($status);
}
