using System;
using System.Diagnostics;
using System.Linq;
using System.Net.Security;
using System.Threading;

namespace Penstock.Client
{
    /// <summary>Options of a producer or consumer. Not to be changed once a client has been made of it.</summary>
    public sealed class PenstockOptions
    {
        private static readonly ThreadLocal<Random> Chance =
            new ThreadLocal<Random>(() => new Random(Guid.NewGuid().GetHashCode()));

        /// <summary>For one send with all its retries; a pull or a request adds it to its wait. A call may take 500 ms
        /// more for an answer.</summary>
        public TimeSpan Deadline { get; set; } = TimeSpan.FromSeconds(10);

        /// <summary>For one attempt at one proxy; shorter finds a hung proxy sooner, and retries more.</summary>
        public TimeSpan CallTimeout { get; set; } = TimeSpan.FromSeconds(3);

        /// <summary>For a new connection with its TLS handshake; less when the deadline comes before.</summary>
        public TimeSpan ConnectTimeout { get; set; } = TimeSpan.FromSeconds(1);

        /// <summary>The first pause after a failure, doubled with each further one, with jitter.</summary>
        public TimeSpan BackoffFirst { get; set; } = TimeSpan.FromMilliseconds(50);

        public TimeSpan BackoffMax { get; set; } = TimeSpan.FromSeconds(2);

        /// <summary>Idle connections kept per proxy.</summary>
        public int IdleConnectionsMax { get; set; } = 8;

        /// <summary>The age of an idle connection beyond which the proxy may have closed it.</summary>
        public TimeSpan IdleMax { get; set; } = TimeSpan.FromSeconds(30);

        /// <summary>A credential is minted anew after this time.</summary>
        public TimeSpan CredentialReuse { get; set; } = TimeSpan.FromSeconds(60);

        /// <summary><c>RunAsync</c> ends when no pull has succeeded for so long. Zero: never.</summary>
        public TimeSpan OutageMax { get; set; } = TimeSpan.FromMinutes(10);

        /// <summary><c>RunAsync</c> extends no lease beyond this; a handler that hangs loses its message
        /// then.</summary>
        public TimeSpan ExtendMax { get; set; } = TimeSpan.FromHours(1);

        /// <summary>Buffered transport instead of framed. Penstock takes both on one port.</summary>
        public bool Buffered { get; set; }

        /// <summary>Makes the options of TLS for the host of an endpoint, which has to be their TargetHost:
        /// <c>host => new SslClientAuthenticationOptions { TargetHost = host }</c>. Null: plain TCP.</summary>
        public Func<string, SslClientAuthenticationOptions>? Tls { get; set; }

        /// <summary>Called with outages and topics that give nothing, one sentence each.</summary>
        public Action<string> Tell { get; set; } = Console.Error.WriteLine;

        public IPenstockMetrics Metrics { get; set; } = new NoMetrics();

        /// <summary>TLS that trusts the certificate authorities in a PEM file alone, host name verified. Returns
        /// this.</summary>
        /// <exception cref="System.IO.IOException">the file cannot be read or has no certificate</exception>
        public PenstockOptions UseTlsTrusting(string pemFile)
        {
            var authorities = new TrustedAuthorities(pemFile);
            Tls = host => new SslClientAuthenticationOptions
            {
                TargetHost = host,
                RemoteCertificateValidationCallback = authorities.Verify,
            };
            return this;
        }

        /// <summary>Milliseconds of the clock that never goes back.</summary>
        internal static double NowMs => Stopwatch.GetTimestamp() * (1e3 / Stopwatch.Frequency);

        /// <exception cref="ArgumentException">a time that has to be more than 0 is not</exception>
        internal PenstockOptions Checked()
        {
            TimeSpan[] times = { Deadline, CallTimeout, ConnectTimeout, BackoffFirst, BackoffMax, ExtendMax };
            return times.Min() > TimeSpan.Zero
                ? this
                : throw new ArgumentException("options: a time is invalid: use more than 0, but for OutageMax");
        }

        internal static double NextChance() => Chance.Value!.NextDouble();

        /// <summary>The pause after the n-th failure in a row, n from 1: a random point in the upper half of a
        /// doubling bound.</summary>
        internal double BackoffMs(int failures, double chance) =>
            Math.Min(BackoffMax.TotalMilliseconds,
                BackoffFirst.TotalMilliseconds * Math.Pow(2, Math.Min(failures - 1, 30))) * (0.5 + chance / 2);

        internal double BackoffMs(int failures) => BackoffMs(failures, NextChance());

        private sealed class NoMetrics : IPenstockMetrics { }
    }
}
