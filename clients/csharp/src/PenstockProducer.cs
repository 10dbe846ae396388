using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Endpoint = Penstock.Client.Pool<Penstock.Producer.Client>.Endpoint;

namespace Penstock.Client
{
    /// <summary>Sends through any of several producer proxies and retries what needs it, each message by its own
    /// result code. Thread-safe; connects at the first call.</summary>
    /// <remarks>A message without an id gets one: 32 hex digits, set in the caller's object. Only with the same id is
    /// a retry after a broken connection free of duplicates. A send that is cancelled may have stored its
    /// messages.</remarks>
    public sealed class PenstockProducer : IAsyncDisposable
    {
        internal const int CallMessagesMax = 1_000;
        internal const long CallBytesMax = 8_000_000; // well under Thrift's frame limit of 16,384,000

        private readonly PenstockOptions options;
        private readonly Pool<Producer.Client> pool;
        private readonly CredentialMint mint;
        private long retried;

        /// <param name="endpoints">"host:port,host:port" of producer proxies</param>
        /// <exception cref="ArgumentException">an endpoint without port, or an empty credential</exception>
        public PenstockProducer(
            string endpoints, string app, string keyId, string secret, PenstockOptions? options = null)
        {
            this.options = (options ?? new PenstockOptions()).Checked();
            pool = new Pool<Producer.Client>(endpoints, protocol => new Producer.Client(protocol), this.options);
            mint = new CredentialMint(app, keyId, secret, this.options.CredentialReuse);
        }

        /// <summary>Resent messages, over all calls.</summary>
        public long Retried => Interlocked.Read(ref retried);

        /// <summary>Sends one message; ends once it is stored.</summary>
        /// <exception cref="PenstockException">it was refused, or the deadline passed; see
        /// <see cref="PenstockException.MaybeStored"/></exception>
        public async Task<SendOutcome> SendAsync(Message message, CancellationToken cancellation = default)
        {
            var sending = SendAllAsync(new[] { message }, null, null, cancellation);
            SendOutcome outcome = (await sending.ConfigureAwait(false))[0];
            return outcome.Ok ? outcome : throw outcome.Exception();
        }

        /// <summary>Sends one message and returns what a consumer replies.</summary>
        /// <param name="wait">added to the deadline; the message is not dispatched afterwards</param>
        /// <exception cref="PenstockException">as of <see cref="SendAsync"/>, or there is no reply: NO_CONSUMER,
        /// NO_REPLY or CONSUMER_FAILED; or TIMEOUT, as an earlier attempt was stored, whose reply cannot be
        /// had</exception>
        public async Task<Message> RequestAsync(
            Message message, TimeSpan wait, CancellationToken cancellation = default)
        {
            var sending = SendAllAsync(new[] { message }, null, wait, cancellation);
            SendOutcome outcome = (await sending.ConfigureAwait(false))[0];
            return outcome.Reply ?? throw outcome.Exception();
        }

        /// <summary>Answers a delivery that has a reply token; ends once the waiting caller has the reply.</summary>
        /// <exception cref="PenstockException">STALE_RECEIPT when the caller no longer waits, or as of
        /// <see cref="SendAsync"/></exception>
        public Task<SendOutcome> ReplyAsync(Delivery delivery, byte[] body, CancellationToken cancellation = default)
        {
            var reply = new Message { Topic = delivery.Message.Topic, Body = body };
            reply.ReplyTo = delivery.ReplyToken ?? Array.Empty<byte>();
            return SendAsync(reply, cancellation);
        }

        /// <summary>Sends many messages, of any topics, and returns one outcome each, in order. Does not throw for a
        /// message's failure. Messages of one key keep their order, over retries too: a message waits while an
        /// earlier one of its key does.</summary>
        /// <param name="durability">null: the topics' setting</param>
        /// <param name="replyWait">wait for a consumer's reply; one message only. Null: not a request</param>
        /// <exception cref="ContractException">no endpoint is a producer proxy, and nothing is stored</exception>
        /// <exception cref="ArgumentException">a message has no topic</exception>
        /// <exception cref="ObjectDisposedException">the producer is closed</exception>
        public Task<IReadOnlyList<SendOutcome>> SendAllAsync(IEnumerable<Message> messages,
            Durability? durability = null, TimeSpan? replyWait = null, CancellationToken cancellation = default)
        {
            double nowMs = PenstockOptions.NowMs;
            var entries = new List<SendEntry>();
            foreach (Message each in messages)
            {
                SendEntry.Prepare(each);
                entries.Add(new SendEntry(each, nowMs, replyWait > TimeSpan.Zero));
            }
            // By a thread of the pool, as Thrift's code would come back to the context of the caller.
            return Task.Run(() => SendAsync(entries, durability, replyWait?.TotalMilliseconds ?? 0, cancellation));
        }

        /// <summary>Closes idle connections; calls in flight end first, later ones are refused.</summary>
        public ValueTask DisposeAsync()
        {
            pool.Dispose();
            return default;
        }

        private async Task<IReadOnlyList<SendOutcome>> SendAsync(List<SendEntry> entries, Durability? durability,
            double replyWaitMs, CancellationToken cancellation)
        {
            double deadlineMs = PenstockOptions.NowMs + options.Deadline.TotalMilliseconds + replyWaitMs;
            double chance = PenstockOptions.NextChance(); // drawn once: what is refused together is resent together
            var open = new List<SendEntry>(entries);
            Endpoint? stay = null;
            while (open.Count > 0)
            {
                double now = PenstockOptions.NowMs;
                double start = Math.Max(now, Math.Max(SendEntry.NextDueMs(open), pool.UsableAtMs()));
                if (start >= deadlineMs)
                {
                    break;
                }
                if (start > now)
                {
                    await Task.Delay((int)Math.Ceiling(start - now), cancellation);
                    continue;
                }
                double timeoutMs = Math.Max(1, Math.Min(options.CallTimeout.TotalMilliseconds, deadlineMs - now));
                var request = new SendRequest(mint.Credential(), new List<Message>()) { TimeoutMs = (int)timeoutMs };
                if (durability != null)
                {
                    request.Durability = durability.Value;
                }
                if (replyWaitMs > 0)
                {
                    request.ReplyWaitMs = (int)Math.Max(1, Math.Min(replyWaitMs, deadlineMs - now));
                }
                try
                {
                    stay = await AttemptAsync(
                        SendEntry.Due(open, now), request, deadlineMs, stay, chance, cancellation);
                }
                catch (ContractException) when (entries.Any(each => each.HasOutcome))
                {
                    break;
                }
                open.RemoveAll(each => each.IsSettled);
            }
            List<SendOutcome> outcomes = entries.ConvertAll(each => each.Outcome());
            outcomes.ForEach(options.Metrics.Sent);
            return outcomes;
        }

        /// <summary>One call of the due messages that fit. Returns the proxy that has promised a slot at its rate
        /// limit, or null.</summary>
        private async Task<Endpoint?> AttemptAsync(List<SendEntry> due, SendRequest request,
            double deadlineMs, Endpoint? stay, double chance, CancellationToken cancellation)
        {
            long size = 0;
            var sending = new List<SendEntry>();
            foreach (SendEntry each in due)
            {
                if (sending.Count > 0 && (sending.Count >= CallMessagesMax || size + each.SizeBytes > CallBytesMax))
                {
                    break;
                }
                size += each.SizeBytes;
                sending.Add(each);
                request.Messages.Add(each.Message);
            }
            Interlocked.Add(ref retried, sending.Count(each => each.Attempts > 0));
            var hello = new SendRequest(request.Credential, new List<Message>());
            double timeoutMs = Math.Max(request.TimeoutMs, request.ReplyWaitMs) + Pool<Producer.Client>.AnswerMarginMs;
            try
            {
                (SendResponse response, Endpoint endpoint) = await pool.CallAsync("send",
                    (client, limit) => client.sendAsync(request, limit),
                    (client, limit) => client.sendAsync(hello, limit), size, timeoutMs, deadlineMs, stay, cancellation);
                if (response.Results?.Count != sending.Count)
                {
                    throw new CallFailed($"{endpoint}: the answer has another number of results", null, true);
                }
                double nowMs = PenstockOptions.NowMs;
                for (int i = 0; i < sending.Count; i++)
                {
                    sending[i].Answered(response.Results[i], nowMs, failures => options.BackoffMs(failures, chance));
                }
                if (sending.Any(each => each.Code.Action() == CodeAction.Elsewhere))
                {
                    pool.SetAside(endpoint);
                }
                else
                {
                    pool.Praise(endpoint);
                }
                return sending.Any(each => each.Code == Code.RATE_LIMITED) ? endpoint : null;
            }
            catch (CallFailed failure)
            {
                sending.ForEach(each => each.Failed(failure.Message, failure.Sent, PenstockOptions.NowMs));
                return null;
            }
            catch (ContractException failure)
            {
                sending.ForEach(each => each.Failed(failure.Message, failure.Sent, PenstockOptions.NowMs));
                throw;
            }
        }
    }
}
