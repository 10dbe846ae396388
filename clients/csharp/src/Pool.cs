using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Thrift;
using Thrift.Protocol;

namespace Penstock.Client
{
    /// <summary>Connections to several proxies. A proxy that fails is set aside for a growing pause; the others are
    /// used in turn. Thread-safe; a connection has one call at a time.</summary>
    internal sealed class Pool<C> : IDisposable
        where C : TBaseClient
    {
        // Until a connection has shown a valid credential, proxies take frames of 64 KiB at most. A larger first call
        // is preceded by a small one.
        private const long UntrustedCallBytesMax = 48 * 1024;

        // A proxy answers by the call's timeout, which may be the deadline; its answer needs a moment to come back.
        internal const double AnswerMarginMs = 500;

        private readonly List<Endpoint> endpoints;
        private readonly Func<TProtocol, C> service;
        private readonly PenstockOptions options;
        private readonly object gate = new object(); // guards what follows and the endpoints; never held over I/O
        private int turn;
        private bool isClosed;

        /// <summary>Endpoints as "host:port,host:port"; IPv6 as "[::1]:9700".</summary>
        internal Pool(string list, Func<TProtocol, C> service, PenstockOptions options)
        {
            endpoints = list.Split(',').Select(each => each.Trim()).Where(each => each != "")
                .Select(each => new Endpoint(each)).ToList();
            if (endpoints.Count == 0)
            {
                throw new ArgumentException("no endpoints: give at least one HOST:PORT");
            }
            this.service = service;
            this.options = options;
            turn = (int)(PenstockOptions.NextChance() * endpoints.Count);
        }

        /// <summary>The time when the first proxy may be tried again; in the past when one may be tried
        /// now.</summary>
        internal double UsableAtMs()
        {
            lock (gate)
            {
                return endpoints.Min(each => each.AsideUntilMs);
            }
        }

        /// <summary>One attempt at the next usable proxy: its answer and which it was.</summary>
        /// <param name="hello">an empty request, sent ahead when <c>sizeBytes</c> are too much for a new
        /// connection</param>
        /// <param name="timeoutMs">for an answer</param>
        /// <param name="deadlineMs">the time by which a connection is made, and AnswerMarginMs later the answer is
        /// here</param>
        /// <param name="stay">the proxy to use unless it is set aside; null: any</param>
        /// <exception cref="CallFailed">no answer of the contract; the proxy has been set aside</exception>
        /// <exception cref="ContractException">that, and all endpoints have answered so last</exception>
        internal async Task<(A Answer, Endpoint Endpoint)> CallAsync<A>(string method,
            Func<C, CancellationToken, Task<A>> call, Func<C, CancellationToken, Task<A>> hello, long sizeBytes,
            double timeoutMs, double deadlineMs, Endpoint? stay, CancellationToken cancellation)
        {
            Endpoint endpoint = Choose(stay);
            double beganMs = PenstockOptions.NowMs;
            Connection<C>? connection = TakeIdle(endpoint);
            double LeftMs() => Math.Min(timeoutMs, deadlineMs + AnswerMarginMs - PenstockOptions.NowMs);
            bool sent = false;
            Exception? failure = null;
            try
            {
                connection ??= await Connection<C>.OpenAsync(
                    endpoint.Host, endpoint.Port, service, options, deadlineMs, cancellation);
                if (sizeBytes > UntrustedCallBytesMax && !connection.IsTrusted)
                {
                    await connection.CallAsync(hello, LeftMs(), cancellation);
                }
                sent = true;
                A answer = await connection.CallAsync(call, LeftMs(), cancellation);
                GiveBack(endpoint, connection);
                return (answer, endpoint);
            }
            catch (Exception error) // sockets, TLS and Thrift each throw their own
            {
                failure = error;
                connection?.Dispose();
                cancellation.ThrowIfCancellationRequested();
                SetAside(endpoint);
                if (error is TApplicationException refusal)
                {
                    // These two answer a call of another service, and one that is refused unread.
                    sent = sent && refusal.Type != TApplicationException.ExceptionType.UnknownMethod
                        && refusal.Type != TApplicationException.ExceptionType.ProtocolError;
                    if (refusal.Type != TApplicationException.ExceptionType.InternalError && AllForeign(endpoint))
                    {
                        throw new ContractException($"{endpoint} refuses `{method}`: {error.Message}", sent);
                    }
                }
                throw new CallFailed($"{endpoint}: {error.GetType().Name}: {error.Message}", error, sent);
            }
            finally
            {
                options.Metrics.Call(
                    method, endpoint.ToString(), TimeSpan.FromMilliseconds(PenstockOptions.NowMs - beganMs), failure);
            }
        }

        /// <summary>Prefer other proxies for a pause that grows with each failure in a row.</summary>
        internal void SetAside(Endpoint endpoint)
        {
            List<Connection<C>> stale;
            lock (gate)
            {
                endpoint.IsForeign = false;
                endpoint.Failures++;
                endpoint.AsideUntilMs = PenstockOptions.NowMs + options.BackoffMs(endpoint.Failures);
                stale = endpoint.Idle.ToList();
                endpoint.Idle.Clear();
            }
            stale.ForEach(each => each.Dispose());
        }

        /// <summary>Notes what a proxy is that was set aside. Where all are, none waits: the next call ends as
        /// soon.</summary>
        private bool AllForeign(Endpoint endpoint)
        {
            lock (gate)
            {
                endpoint.IsForeign = true;
                if (!endpoints.All(each => each.IsForeign))
                {
                    return false;
                }
                foreach (Endpoint each in endpoints)
                {
                    each.IsForeign = false;
                    each.Failures = 0;
                    each.AsideUntilMs = 0;
                }
                return true;
            }
        }

        /// <summary>Reset the failures of a proxy that answered.</summary>
        internal void Praise(Endpoint endpoint)
        {
            lock (gate)
            {
                endpoint.Failures = 0;
                endpoint.AsideUntilMs = 0;
            }
        }

        public void Dispose()
        {
            lock (gate)
            {
                isClosed = true;
                foreach (Endpoint endpoint in endpoints)
                {
                    foreach (Connection<C> each in endpoint.Idle)
                    {
                        each.Dispose();
                    }
                    endpoint.Idle.Clear();
                }
            }
        }

        private Endpoint Choose(Endpoint? stay)
        {
            lock (gate)
            {
                if (isClosed)
                {
                    throw new ObjectDisposedException(null, "the client is closed");
                }
                double nowMs = PenstockOptions.NowMs;
                if (stay != null && stay.AsideUntilMs <= nowMs)
                {
                    return stay;
                }
                turn = (turn + 1) % endpoints.Count;
                // The sort is stable: of those that may be tried now, the next in turn.
                return endpoints.Skip(turn).Concat(endpoints.Take(turn))
                    .OrderBy(each => Math.Max(each.AsideUntilMs, nowMs)).First();
            }
        }

        private Connection<C>? TakeIdle(Endpoint endpoint)
        {
            lock (gate)
            {
                while (endpoint.Idle.Count > 0)
                {
                    Connection<C> newest = endpoint.Idle.Pop();
                    if (PenstockOptions.NowMs - newest.UsedAtMs <= options.IdleMax.TotalMilliseconds)
                    {
                        return newest;
                    }
                    newest.Dispose();
                }
                return null;
            }
        }

        private void GiveBack(Endpoint endpoint, Connection<C> connection)
        {
            lock (gate)
            {
                endpoint.IsForeign = false;
                if (!isClosed && endpoint.Idle.Count < options.IdleConnectionsMax)
                {
                    endpoint.Idle.Push(connection);
                    return;
                }
            }
            connection.Dispose();
        }

        /// <summary>One proxy; guarded by the pool.</summary>
        internal sealed class Endpoint
        {
            internal Endpoint(string text)
            {
                int colon = text.LastIndexOf(':');
                if (colon < 1 || !ushort.TryParse(text.Substring(colon + 1), out ushort port))
                {
                    throw new ArgumentException($"endpoint \"{text}\": invalid: use HOST:PORT");
                }
                Host = text.Substring(0, colon).TrimStart('[').TrimEnd(']');
                Port = port;
            }

            internal string Host { get; }

            internal int Port { get; }

            internal Stack<Connection<C>> Idle { get; } = new Stack<Connection<C>>();

            internal bool IsForeign { get; set; } // its last answer was none of this contract

            internal int Failures { get; set; }

            internal double AsideUntilMs { get; set; } // 0: it may be used

            public override string ToString() => $"{Host}:{Port}";
        }
    }
}
