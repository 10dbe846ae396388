<?php

namespace Penstock\Client;

use Penstock\Code;

/** What to do about a result code: its hundreds digit says it, so codes that are newer than this client work too. */
enum Action: int
{
    case Done = 0;
    /** The request is wrong: the same again will not help. */
    case Refused = 1;
    /** Not stored: again after a pause. */
    case Later = 2;
    /** May be stored: again with the same id. */
    case Unknown = 3;
    /** Not stored: again at once, at another proxy. */
    case Elsewhere = 4;
    /** Stored, but the reply that was waited for did not come. */
    case NoReply = 5;

    /** A hundreds digit that nobody has defined yet is read as Unknown, the careful reading. */
    public static function of(int $code): self
    {
        return self::tryFrom(intdiv($code, 100)) ?? self::Unknown;
    }

    public static function nameOf(int $code): string
    {
        return Code::$__names[$code] ?? (string) $code;
    }
}
