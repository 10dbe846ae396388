using System;
using System.Threading;
using System.Threading.Tasks;

namespace Penstock.Client
{
    /// <summary>The loop of <see cref="PenstockConsumer.RunAsync"/>: pull, handle, acknowledge in time, and ride
    /// through outages.</summary>
    internal sealed class RunLoop
    {
        private readonly PenstockConsumer consumer;
        private readonly Func<Delivery, Task<Verdict>> handler;
        private readonly RunOptions how;
        private readonly CancellationToken stop;
        private readonly HeldLeases held; // guarded by the consumer's gate
        private volatile bool isEnded;
        private double servedAtMs = PenstockOptions.NowMs;
        private int failures;

        internal RunLoop(PenstockConsumer consumer, Func<Delivery, Task<Verdict>> handler, RunOptions how,
            CancellationToken stop)
        {
            this.consumer = consumer;
            this.handler = handler;
            this.how = how;
            this.stop = stop;
            held = new HeldLeases(consumer.Options.ExtendMax.TotalMilliseconds, how.Workers);
        }

        internal async Task RunAsync()
        {
            using var waking = stop.Register(consumer.Changed.Raise);
            Task keeper = Task.Run(KeepAsync);
            try
            {
                while (!stop.IsCancellationRequested)
                {
                    Task changed = consumer.Changed.Next;
                    if (Start())
                    {
                        await PullAsync();
                    }
                    else if (!stop.IsCancellationRequested)
                    {
                        await changed; // a handler ends, or a stop
                    }
                }
            }
            finally
            {
                await EndAsync(keeper);
            }
            await consumer.FlushAsync();
        }

        /// <summary>Starts handlers for what waits, as far as workers are free; false: a handler has to end before
        /// the next pull.</summary>
        private bool Start()
        {
            lock (consumer.Gate)
            {
                while (!stop.IsCancellationRequested && held.Begin(PenstockOptions.NowMs) is HeldLeases.Held next)
                {
                    Task.Run(() => WorkAsync(next));
                }
                return held.HasRoom;
            }
        }

        private async Task WorkAsync(HeldLeases.Held begun)
        {
            double beganMs = PenstockOptions.NowMs;
            Verdict verdict;
            string? reason = null;
            try
            {
                verdict = await handler(begun.Delivery);
                if (verdict == Verdict.EXTEND || verdict == Verdict.RELEASE)
                {
                    throw new ArgumentException($"the handler returned {verdict}: use DONE, RETRY or REJECT");
                }
            }
            catch (Exception error) // a handler's fault costs its message an attempt, not the loop
            {
                verdict = Verdict.RETRY;
                reason = $"{error.GetType().Name}: {error.Message}";
            }
            double tookMs = PenstockOptions.NowMs - beganMs;
            Ack ack = WaitingAcks.New(begun.Delivery, verdict);
            ack.Reason = reason;
            // Before its end, which the end of the run waits for.
            consumer.Options.Metrics.Handled(begun.Delivery, verdict, TimeSpan.FromMilliseconds(tookMs));
            lock (consumer.Gate) // one step, so that no extension follows the acknowledgement
            {
                held.End(begun, tookMs);
                consumer.Acknowledge(ack);
            }
            consumer.Changed.Raise();
        }

        private async Task PullAsync()
        {
            int wanted;
            double waitMs = how.Wait.TotalMilliseconds;
            lock (consumer.Gate)
            {
                wanted = held.Wanted(how.MaxMessages);
                // Beside handlers a pull waits for a sixth of a lease at most: the next has to carry their extensions.
                waitMs = held.IsBusy ? Math.Min(waitMs, held.LookMs) : waitMs;
            }
            PullResponse? response;
            try
            {
                // A stop does not break it off: what it leases would wait for the end of its leases.
                response = await consumer.PullAsync(wanted, waitMs, held, () => stop.IsCancellationRequested, default);
            }
            catch (PenstockException error) when (!(error is ContractException))
            {
                await FailedAsync(error);
                return;
            }
            if (response == null)
            {
                return;
            }
            double nowMs = PenstockOptions.NowMs;
            if (failures > 0)
            {
                consumer.Options.Tell($"pulling again after {(nowMs - servedAtMs) / 1000:F0} s");
            }
            failures = 0;
            servedAtMs = nowMs;
            lock (consumer.Gate)
            {
                held.Pulled(response.Deliveries, consumer.LeaseMs > 0 ? consumer.LeaseMs : response.InvisibleMs, nowMs);
            }
        }

        /// <summary>Tells of the outage and pauses. Throws the error if waiting cannot help, or was in vain for too
        /// long.</summary>
        private async Task FailedAsync(PenstockException error)
        {
            // Two refusals end when an operator defines what is missing.
            bool isFinal = error.Code.Action() == CodeAction.Refused
                && error.Code != Code.UNKNOWN_TOPIC && error.Code != Code.UNKNOWN_GROUP;
            double outageMsMax = consumer.Options.OutageMax.TotalMilliseconds;
            if (isFinal || (outageMsMax > 0 && PenstockOptions.NowMs - servedAtMs >= outageMsMax))
            {
                throw error;
            }
            failures++;
            if (failures == 1)
            {
                consumer.Options.Tell("no pull succeeds, trying again: " + error.Message);
            }
            Task changed = consumer.Changed.Next;
            if (!stop.IsCancellationRequested)
            {
                await Signal.WaitAsync(changed, consumer.Options.BackoffMs(failures));
            }
        }

        /// <summary>Delivers acknowledgements and extensions in time.</summary>
        private async Task KeepAsync()
        {
            double lookedAtMs = PenstockOptions.NowMs;
            while (!isEnded)
            {
                Task changed = consumer.Changed.Next;
                double lookMs;
                bool isDue;
                lock (consumer.Gate)
                {
                    lookMs = held.LookMs;
                    isDue = consumer.IsAckDue(lookMs) || held.IsDue(PenstockOptions.NowMs);
                }
                double leftMs = lookedAtMs + lookMs - PenstockOptions.NowMs;
                if (isEnded)
                {
                    return;
                }
                if (leftMs > 0)
                {
                    await Signal.WaitAsync(changed, leftMs);
                    continue;
                }
                lookedAtMs = PenstockOptions.NowMs;
                if (isDue)
                {
                    try
                    {
                        await consumer.PullAsync(0, 0, held, () => isEnded, default);
                    }
                    catch (Exception error) when (error is PenstockException || error is ObjectDisposedException)
                    {
                        // the next look or pull tries again
                    }
                }
            }
        }

        /// <summary>Waits for the handlers in progress, whose leases are kept meanwhile, and gives back what none has
        /// seen.</summary>
        private async Task EndAsync(Task keeper)
        {
            while (true)
            {
                Task changed = consumer.Changed.Next;
                lock (consumer.Gate)
                {
                    if (!held.IsBusy)
                    {
                        break;
                    }
                }
                await changed;
            }
            isEnded = true;
            consumer.Changed.Raise();
            await keeper;
            lock (consumer.Gate)
            {
                held.Release().ForEach(each => consumer.Acknowledge(WaitingAcks.New(each, Verdict.RELEASE)));
            }
        }
    }
}
