using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;

namespace Penstock.Client
{
    /// <summary>Collects single messages into calls, made one after another. A call takes all that waits, as far as
    /// it fits. Messages of one key keep their order, over retries too. Thread-safe; it does not close the
    /// producer.</summary>
    /// <remarks>A message must not be changed before its outcome is known.</remarks>
    public sealed class BatchingProducer : IAsyncDisposable
    {
        private static readonly TimeSpan Close = TimeSpan.FromSeconds(10);

        private readonly PenstockProducer producer;
        private readonly BatchingOptions how;
        private readonly SemaphoreSlim entering = new SemaphoreSlim(1); // who waits for room does so in order
        private readonly Signal changed = new Signal();
        private readonly object gate = new object(); // guards all below
        private readonly Queue<Waiting> waiting = new Queue<Waiting>();
        private long waitingBytes;
        private long bytes; // of what waits or is on its way
        private long taken; // messages so far
        private long answered;
        private long flushTo;
        private bool isClosed;

        public BatchingProducer(PenstockProducer producer, BatchingOptions? how = null)
        {
            this.producer = producer;
            this.how = how ?? new BatchingOptions();
            Task.Run(SendBatchesAsync);
        }

        /// <summary>Sends a message; ends once it is stored. Without awaiting one before the next they go in one
        /// call, in this order.</summary>
        /// <exception cref="PenstockException">as of <see cref="PenstockProducer.SendAsync"/></exception>
        /// <exception cref="FullException">no room came in time; the message was not taken</exception>
        /// <exception cref="ObjectDisposedException">closed before it was sent; the message is not stored</exception>
        public async Task<SendOutcome> SendAsync(Message message) =>
            await (await EnqueueAsync(message).ConfigureAwait(false)).ConfigureAwait(false);

        /// <summary>Takes a message, once there is room for it, and returns the task of its outcome, which ends as
        /// that of <see cref="SendAsync"/>: for who sends many and has to be slowed down.</summary>
        /// <exception cref="FullException">no room came in time; the message was not taken</exception>
        /// <exception cref="ObjectDisposedException">the producer is closed</exception>
        public async Task<Task<SendOutcome>> EnqueueAsync(Message message)
        {
            SendEntry.Prepare(message);
            double fullMs = how.FullWait < TimeSpan.Zero ? double.PositiveInfinity : how.FullWait.TotalMilliseconds;
            double untilMs = PenstockOptions.NowMs + fullMs;
            bool isFirst = await entering.WaitAsync(how.FullWait).ConfigureAwait(false);
            try
            {
                bool hasRoom = isFirst
                    && await UntilAsync(() => isClosed || bytes < how.BytesMax, untilMs).ConfigureAwait(false);
                lock (gate)
                {
                    if (isClosed)
                    {
                        throw new ObjectDisposedException(null, "the producer is closed");
                    }
                    if (!hasRoom)
                    {
                        throw new FullException($"the batching producer is full: {bytes} bytes wait");
                    }
                    var made = new Waiting(message);
                    waiting.Enqueue(made);
                    taken++;
                    bytes += made.Size;
                    waitingBytes += made.Size;
                    if (waiting.Count == 1 || IsEnough)
                    {
                        changed.Raise();
                    }
                    return made.Outcome.Task;
                }
            }
            finally
            {
                if (isFirst)
                {
                    entering.Release();
                }
            }
        }

        /// <summary>Sends what waits now, and ends when all that was taken before is answered.</summary>
        public async Task FlushAsync(CancellationToken cancellation = default)
        {
            long last;
            lock (gate)
            {
                flushTo = last = taken;
            }
            changed.Raise();
            await UntilAsync(() => answered >= last, double.PositiveInfinity, cancellation).ConfigureAwait(false);
        }

        /// <summary>As <see cref="CloseAsync"/>, within 10 s.</summary>
        public ValueTask DisposeAsync() => new ValueTask(CloseAsync(Close));

        /// <summary>Sends what waits, until the deadline at most. What is in no call by then ends with an
        /// ObjectDisposedException; a call in progress goes on by its own deadline. Later messages are
        /// refused.</summary>
        public async Task CloseAsync(TimeSpan deadline)
        {
            lock (gate)
            {
                isClosed = true;
            }
            changed.Raise();
            double untilMs = PenstockOptions.NowMs + deadline.TotalMilliseconds;
            await UntilAsync(() => answered == taken, untilMs).ConfigureAwait(false);
            List<Waiting> left;
            lock (gate)
            {
                left = waiting.ToList();
                waiting.Clear();
                answered += left.Count;
            }
            changed.Raise();
            left.ForEach(each => each.Outcome.TrySetException(
                new ObjectDisposedException(null, "the producer was closed before it sent the message")));
        }

        private bool IsEnough => waitingBytes >= how.Bytes || waiting.Count >= how.Messages;

        private async Task SendBatchesAsync()
        {
            for (List<Waiting> batch = await NextBatchAsync(); batch.Count > 0; batch = await NextBatchAsync())
            {
                try
                {
                    var outcomes = await producer.SendAllAsync(batch.Select(each => each.Message));
                    foreach ((Waiting each, SendOutcome outcome) in batch.Zip(outcomes, (a, b) => (a, b)))
                    {
                        if (outcome.Ok)
                        {
                            each.Outcome.TrySetResult(outcome);
                        }
                        else
                        {
                            each.Outcome.TrySetException(outcome.Exception());
                        }
                    }
                }
                catch (Exception error)
                {
                    batch.ForEach(each => each.Outcome.TrySetException(error));
                }
                lock (gate)
                {
                    answered += batch.Count;
                    bytes -= batch.Sum(each => each.Size);
                }
                changed.Raise();
            }
        }

        /// <summary>What the next call takes, once it is to be made; empty when none will be.</summary>
        private async Task<List<Waiting>> NextBatchAsync()
        {
            await UntilAsync(() => isClosed || waiting.Count > 0, double.PositiveInfinity);
            double lingerUntilMs = 0;
            lock (gate)
            {
                if (waiting.Count > 0)
                {
                    lingerUntilMs = waiting.Peek().SinceMs + how.Linger.TotalMilliseconds;
                }
            }
            await UntilAsync(() => isClosed || flushTo > answered || IsEnough, lingerUntilMs);
            var batch = new List<Waiting>();
            long size = 0;
            lock (gate)
            {
                while (waiting.Count > 0 && batch.Count < PenstockProducer.CallMessagesMax
                    && (batch.Count == 0 || size + waiting.Peek().Size <= PenstockProducer.CallBytesMax))
                {
                    batch.Add(waiting.Dequeue());
                    size += batch[batch.Count - 1].Size;
                }
                waitingBytes -= size;
            }
            return batch;
        }

        /// <summary>Waits until it is so, asked under the gate, and until that time at most; whether it is.</summary>
        private async Task<bool> UntilAsync(Func<bool> isSo, double untilMs, CancellationToken cancellation = default)
        {
            while (true)
            {
                Task next = changed.Next;
                lock (gate)
                {
                    if (isSo())
                    {
                        return true;
                    }
                }
                double leftMs = untilMs - PenstockOptions.NowMs;
                if (leftMs <= 0)
                {
                    return false;
                }
                await Signal.WaitAsync(next, leftMs, cancellation).ConfigureAwait(false);
            }
        }

        private sealed class Waiting
        {
            internal Waiting(Message message)
            {
                Message = message;
                Size = new SendEntry(message, 0, false).SizeBytes;
            }

            internal Message Message { get; }

            internal long Size { get; }

            internal double SinceMs { get; } = PenstockOptions.NowMs;

            internal TaskCompletionSource<SendOutcome> Outcome { get; } =
                new TaskCompletionSource<SendOutcome>(TaskCreationOptions.RunContinuationsAsynchronously);
        }
    }
}
