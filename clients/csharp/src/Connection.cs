using System;
using System.IO;
using System.Net.Security;
using System.Net.Sockets;
using System.Threading;
using System.Threading.Tasks;
using Thrift;
using Thrift.Protocol;
using Thrift.Transport;
using Thrift.Transport.Client;

namespace Penstock.Client
{
    /// <summary>One socket with one call at a time. After any failure it is closed: a late answer would go to the
    /// next call.</summary>
    internal sealed class Connection<C> : IDisposable
        where C : TBaseClient
    {
        private readonly TcpClient socket;
        private readonly C client;

        private Connection(TcpClient socket, C client)
        {
            this.socket = socket;
            this.client = client;
        }

        internal bool IsTrusted { get; private set; }

        internal double UsedAtMs { get; private set; } = PenstockOptions.NowMs;

        internal static async Task<Connection<C>> OpenAsync(string host, int port, Func<TProtocol, C> service,
            PenstockOptions options, double deadlineMs, CancellationToken cancellation)
        {
            double timeoutMs = Math.Min(options.ConnectTimeout.TotalMilliseconds, deadlineMs - PenstockOptions.NowMs);
            var socket = new TcpClient { NoDelay = true };
            try
            {
                return await WithinAsync(timeoutMs, cancellation, async limit =>
                {
                    using var closing = limit.Register(socket.Dispose); // connecting takes no token
                    await socket.ConnectAsync(host, port);
                    Stream stream = socket.GetStream();
                    if (options.Tls != null)
                    {
                        var encrypted = new SslStream(stream, false);
                        await encrypted.AuthenticateAsClientAsync(options.Tls(host), limit);
                        stream = encrypted;
                    }
                    TTransport wire = new TStreamTransport(stream, stream, new TConfiguration());
                    wire = options.Buffered
                        ? (TTransport)new TBufferedTransport(wire, 1 << 14)
                        : new TFramedTransport(wire);
                    return new Connection<C>(socket, service(new TBinaryProtocol(wire)));
                });
            }
            catch
            {
                socket.Dispose();
                throw;
            }
        }

        internal async Task<A> CallAsync<A>(Func<C, CancellationToken, Task<A>> call, double timeoutMs,
            CancellationToken cancellation)
        {
            A answer = await WithinAsync(timeoutMs, cancellation, limit => call(client, limit));
            IsTrusted = true;
            UsedAtMs = PenstockOptions.NowMs;
            return answer;
        }

        public void Dispose()
        {
            socket.Dispose();
            client.Dispose();
        }

        /// <summary>However the work fails at its limit, that is a TimeoutException, or the caller's
        /// cancellation.</summary>
        private static async Task<A> WithinAsync<A>(double ms, CancellationToken cancellation,
            Func<CancellationToken, Task<A>> work)
        {
            using var limit = CancellationTokenSource.CreateLinkedTokenSource(cancellation);
            limit.CancelAfter(TimeSpan.FromMilliseconds(Math.Max(1, ms)));
            try
            {
                return await work(limit.Token);
            }
            catch (Exception error) when (limit.IsCancellationRequested)
            {
                cancellation.ThrowIfCancellationRequested();
                throw new TimeoutException($"no answer within {ms:F0} ms", error);
            }
        }
    }
}
