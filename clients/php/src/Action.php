<?php

declare(strict_types=1);

namespace Penstock\Client;

use Penstock\Code;

/** The action for a result code, by its hundreds digit, so codes newer than this client work too. */
enum Action: int
{
    case Done = 0;
    /** The request is wrong: do not retry it unchanged. */
    case Refused = 1;
    /** Not stored: retry after a pause. */
    case Later = 2;
    /** May be stored: retry with the same id. */
    case Unknown = 3;
    /** Not stored: retry at once, at another proxy. */
    case Elsewhere = 4;
    /** Stored, but the reply did not come. */
    case NoReply = 5;

    /** An undefined hundreds digit is Unknown, the safe choice. */
    public static function of(int $code): self
    {
        return self::tryFrom(intdiv($code, 100)) ?? self::Unknown;
    }

    public static function nameOf(int $code): string
    {
        return Code::$__names[$code] ?? (string) $code;
    }
}
