using System;
using System.Security.Cryptography;
using System.Text;

namespace Penstock.Client
{
    /// <summary>Mints the credential and keeps it for a while, as the proxies cache their verdict by its bytes.
    /// Thread-safe.</summary>
    internal sealed class CredentialMint
    {
        private readonly string app;
        private readonly string keyId;
        private readonly byte[] secret;
        private readonly double reuseMs;
        private readonly object gate = new object();
        private Credential? minted;

        internal CredentialMint(string app, string keyId, string secret, TimeSpan reuse)
        {
            if (string.IsNullOrEmpty(app) || string.IsNullOrEmpty(keyId) || string.IsNullOrEmpty(secret))
            {
                throw new ArgumentException("credential: incomplete: use the application, its key id and its secret");
            }
            this.app = app;
            this.keyId = keyId;
            this.secret = Encoding.UTF8.GetBytes(secret);
            reuseMs = reuse.TotalMilliseconds;
        }

        internal Credential Credential()
        {
            long now = DateTimeOffset.UtcNow.ToUnixTimeMilliseconds();
            lock (gate)
            {
                if (minted == null || now < minted.IssuedAtMs || now - minted.IssuedAtMs >= reuseMs)
                {
                    using var mac = new HMACSHA256(secret);
                    byte[] signature = mac.ComputeHash(Encoding.UTF8.GetBytes($"penstock/1\n{app}\n{keyId}\n{now}"));
                    minted = new Credential(app, keyId, now, signature);
                }
                return minted;
            }
        }
    }
}
