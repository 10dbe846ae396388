<?php

declare(strict_types=1);

namespace Penstock\Client;

use Penstock\Credential;

/** Mints the application's credential and keeps it for a while, as the proxies cache their verdict by its bytes. */
final class CredentialMint
{
    private ?Credential $minted = null;

    public function __construct(
        private readonly string $app,
        private readonly string $keyId,
        #[\SensitiveParameter] private readonly string $secret,
        private readonly int $reuseMs,
    ) {
    }

    public function credential(): Credential
    {
        $nowMs = (int) (microtime(true) * 1000);
        $ageMs = $this->minted === null ? -1 : $nowMs - $this->minted->issued_at_ms;
        if ($ageMs < 0 || $ageMs >= $this->reuseMs) {
            $this->minted = new Credential([
                'app' => $this->app,
                'key_id' => $this->keyId,
                'issued_at_ms' => $nowMs,
                'signature' => hash_hmac('sha256', "penstock/1\n$this->app\n$this->keyId\n$nowMs", $this->secret, true),
            ]);
        }
        return $this->minted;
    }
}
