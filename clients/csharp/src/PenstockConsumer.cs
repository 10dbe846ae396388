using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Endpoint = Penstock.Client.Pool<Penstock.Consumer.Client>.Endpoint;

namespace Penstock.Client
{
    /// <summary>One member of a group. Any number of members share the group's messages, without assignment.
    /// Thread-safe; one pull at a time.</summary>
    /// <remarks>Acknowledgements wait here and travel with the next pull; <see cref="DisposeAsync"/> delivers the
    /// last ones. What is pulled and not acknowledged is redelivered, with its attempt one higher, after its
    /// lease.</remarks>
    public sealed class PenstockConsumer : IAsyncDisposable
    {
        private const long AckBytes = 120; // estimated size of one acknowledgement in a request
        private const double SocketMarginMs = 2_000;

        private readonly string group;
        private readonly List<string> topics;
        private readonly Pool<Consumer.Client> pool;
        private readonly CredentialMint mint;
        private readonly SemaphoreSlim pulling = new SemaphoreSlim(1);
        private readonly UnservedTopics unserved; // guarded by pulling
        private readonly WaitingAcks acks = new WaitingAcks(); // guarded by Gate
        private int running;

        /// <param name="endpoints">"host:port,host:port" of consumer proxies</param>
        /// <param name="topics">null or empty: all topics of the group's definition</param>
        /// <param name="lease">lease time of the deliveries, 1 s to 12 h; null: the group's setting</param>
        /// <exception cref="ArgumentException">an endpoint without port, or an empty credential</exception>
        public PenstockConsumer(string endpoints, string app, string keyId, string secret, string group,
            IEnumerable<string>? topics = null, PenstockOptions? options = null, TimeSpan? lease = null)
        {
            Options = (options ?? new PenstockOptions()).Checked();
            LeaseMs = lease?.TotalMilliseconds ?? 0;
            this.group = group;
            this.topics = topics?.ToList() ?? new List<string>();
            pool = new Pool<Consumer.Client>(endpoints, protocol => new Consumer.Client(protocol), Options);
            mint = new CredentialMint(app, keyId, secret, Options.CredentialReuse);
            unserved = new UnservedTopics(this.topics, Options.Tell);
        }

        /// <summary>Acknowledgements that were late or invalid: their messages are redelivered.</summary>
        public int AcksRefused
        {
            get
            {
                lock (Gate)
                {
                    return acks.Refused;
                }
            }
        }

        /// <summary>Topics that the last pull named and that give nothing, with the reason of each.</summary>
        public IReadOnlyDictionary<string, string> UnservedTopics => unserved.Reasons;

        internal PenstockOptions Options { get; }

        internal double LeaseMs { get; }

        /// <summary>Guards the acknowledgements and the leases of a run.</summary>
        internal object Gate { get; } = new object();

        /// <summary>Raised when a run or a pull that waits has to look again.</summary>
        internal Signal Changed { get; } = new Signal();

        /// <summary>The next deliveries; none when none came within <c>wait</c> (30 s at most). Retries at other
        /// proxies until the deadline. What a pull that is cancelled would have returned comes after its
        /// lease.</summary>
        /// <exception cref="PenstockException">refused (wrong credential, group or topic), or no proxy answered
        /// before the deadline</exception>
        /// <exception cref="ObjectDisposedException">the consumer is closed</exception>
        public async Task<IReadOnlyList<Delivery>> PullAsync(
            int maxMessages, TimeSpan wait, CancellationToken cancellation = default)
        {
            Task<PullResponse?> pull = PullAsync(maxMessages, wait.TotalMilliseconds, null, () => false, cancellation);
            return (await pull.ConfigureAwait(false))!.Deliveries;
        }

        /// <summary>Like all verdicts it travels with the next pull, <see cref="FlushAsync"/> or
        /// <see cref="DisposeAsync"/>.</summary>
        public void Done(Delivery delivery) => Acknowledge(WaitingAcks.New(delivery, Verdict.DONE));

        /// <summary>Requests redelivery after the delay (null: the group's back-off).</summary>
        public void Retry(Delivery delivery, TimeSpan? delay = null, string? reason = null)
        {
            Ack ack = WaitingAcks.New(delivery, Verdict.RETRY);
            ack.Reason = reason;
            if (delay != null)
            {
                ack.DelayMs = (int)delay.Value.TotalMilliseconds;
            }
            Acknowledge(ack);
        }

        /// <summary>Sends it to the dead-letter topic now; the reason is stored with it.</summary>
        public void Reject(Delivery delivery, string? reason = null)
        {
            Ack ack = WaitingAcks.New(delivery, Verdict.REJECT);
            ack.Reason = reason;
            Acknowledge(ack);
        }

        /// <summary>The lease ends this long after a proxy has taken the acknowledgement.</summary>
        public void Extend(Delivery delivery, TimeSpan delay)
        {
            Ack ack = WaitingAcks.New(delivery, Verdict.EXTEND);
            ack.DelayMs = (int)delay.TotalMilliseconds;
            Acknowledge(ack);
        }

        /// <summary>Delivers the waiting acknowledgements now, without taking messages.</summary>
        public Task FlushAsync(CancellationToken cancellation = default) =>
            IsAckDue(0) ? PullAsync(0, 0, null, () => false, cancellation) : Task.CompletedTask;

        /// <summary>Pulls and handles until <c>stop</c>, then gives back what no handler has seen, delivers the last
        /// acknowledgements and ends without an exception. Leases are extended while messages wait or are handled;
        /// the rules are in clients/README.md.</summary>
        /// <param name="handler">returns DONE, RETRY or REJECT; after an exception the message is delivered again,
        /// with the exception as reason. It has to await, not to block: it runs by the threads of the pool</param>
        /// <exception cref="PenstockException">refused for good, no pull succeeded for the option OutageMax, or the
        /// last acknowledgements could not be delivered</exception>
        /// <exception cref="InvalidOperationException">another run of this consumer is in progress, or it is
        /// closed</exception>
        public async Task RunAsync(Func<Delivery, Task<Verdict>> handler, RunOptions? how = null,
            CancellationToken stop = default)
        {
            how ??= new RunOptions();
            if (how.Workers < 1 || how.MaxMessages < 1)
            {
                throw new ArgumentException("Workers and MaxMessages: use a number from 1");
            }
            if (Interlocked.Exchange(ref running, 1) != 0)
            {
                throw new InvalidOperationException("another run of this consumer is in progress");
            }
            try
            {
                await Task.Run(() => new RunLoop(this, handler, how, stop).RunAsync()).ConfigureAwait(false);
            }
            finally
            {
                running = 0;
            }
        }

        /// <summary>Delivers the waiting acknowledgements and closes the connections.</summary>
        public async ValueTask DisposeAsync()
        {
            try
            {
                await FlushAsync().ConfigureAwait(false);
            }
            finally
            {
                pool.Dispose();
            }
        }

        internal void Acknowledge(Ack ack)
        {
            lock (Gate)
            {
                acks.Add(ack);
            }
        }

        /// <summary>Whether acknowledgements have waited here for so long.</summary>
        internal bool IsAckDue(double waitMs)
        {
            lock (Gate)
            {
                return acks.IsDue(waitMs);
            }
        }

        /// <summary>The response that was served; null when <c>isStopped</c> said so before. Extends the leases of
        /// held if given.</summary>
        internal Task<PullResponse?> PullAsync(int maxMessages, double waitMs, HeldLeases? held, Func<bool> isStopped,
            CancellationToken cancellation)
        {
            // By a thread of the pool, as Thrift's code would come back to the context of the caller.
            return Task.Run(async () =>
            {
                await pulling.WaitAsync(cancellation);
                try
                {
                    return await RetriedAsync(maxMessages, waitMs, held, isStopped, cancellation);
                }
                finally
                {
                    pulling.Release();
                }
            });
        }

        private async Task<PullResponse?> RetriedAsync(int maxMessages, double waitMs, HeldLeases? held,
            Func<bool> isStopped, CancellationToken cancellation)
        {
            double deadlineMs = PenstockOptions.NowMs + waitMs + Options.Deadline.TotalMilliseconds;
            var error = new PenstockException(Code.UNAVAILABLE, "no proxy could be reached before the deadline");
            double dueAtMs = 0;
            int failures = 0;
            Endpoint? stay = null;
            while (true)
            {
                Task changed = Changed.Next;
                double now = PenstockOptions.NowMs;
                double start = Math.Max(now, Math.Max(dueAtMs, pool.UsableAtMs()));
                if (start >= deadlineMs)
                {
                    throw error;
                }
                if (isStopped())
                {
                    return null;
                }
                if (start > now)
                {
                    await Signal.WaitAsync(changed, start - now, cancellation);
                    continue;
                }
                PullResponse response;
                Endpoint endpoint;
                try
                {
                    (response, endpoint) = await AttemptAsync(
                        maxMessages, waitMs, deadlineMs, held, stay, cancellation);
                }
                catch (CallFailed failure)
                {
                    error = new PenstockException(Code.UNAVAILABLE, failure.Message);
                    continue;
                }
                if (maxMessages > 0)
                {
                    unserved.Take(response);
                }
                CodeAction action = response.Code.Action();
                if (action == CodeAction.Done)
                {
                    pool.Praise(endpoint);
                    return response;
                }
                error = new PenstockException(response.Code, response.Error);
                if (action == CodeAction.Refused)
                {
                    throw error;
                }
                failures++;
                if (action == CodeAction.Elsewhere)
                {
                    pool.SetAside(endpoint);
                }
                else
                {
                    dueAtMs = PenstockOptions.NowMs
                        + SendEntry.PauseMs(response.Code, response.RetryAfterMs, Options.BackoffMs(failures));
                    stay = response.Code == Code.RATE_LIMITED ? endpoint : null;
                }
            }
        }

        private async Task<(PullResponse Answer, Endpoint Endpoint)> AttemptAsync(int maxMessages,
            double waitMs, double deadlineMs, HeldLeases? held, Endpoint? stay, CancellationToken cancellation)
        {
            double sentAtMs = PenstockOptions.NowMs;
            List<Ack> given;
            int sent;
            var extended = new List<HeldLeases.Held>();
            lock (Gate)
            {
                given = acks.ToSend();
                sent = given.Count;
                if (held != null)
                {
                    extended = held.ToExtend(sentAtMs);
                    given.AddRange(extended.Select(each => Extension(each.Delivery, held.LeaseMs)));
                }
            }
            PullRequest request = Request(maxMessages);
            request.WaitMs = (int)Math.Max(0, Math.Min(waitMs, deadlineMs - sentAtMs));
            request.Acks = given;
            if (LeaseMs > 0)
            {
                request.InvisibleMs = (int)LeaseMs;
            }
            PullRequest hello = Request(0);
            (PullResponse response, Endpoint endpoint) = await pool.CallAsync("pull",
                (client, limit) => client.pullAsync(request, limit),
                (client, limit) => client.pullAsync(hello, limit),
                given.Count * AckBytes, request.WaitMs + SocketMarginMs, deadlineMs, stay, cancellation);
            lock (Gate)
            {
                acks.Settle(sent, response);
                held?.Extended(extended, sent, response, sentAtMs);
            }
            return (response, endpoint);
        }

        private static Ack Extension(Delivery delivery, double leaseMs)
        {
            Ack ack = WaitingAcks.New(delivery, Verdict.EXTEND);
            ack.DelayMs = (int)leaseMs;
            return ack;
        }

        private PullRequest Request(int maxMessages) =>
            new PullRequest(mint.Credential(), group) { Topics = topics, MaxMessages = maxMessages };
    }
}
