using System;
using System.Collections.Generic;
using System.Linq;

namespace Penstock.Client
{
    /// <summary>The deliveries that a run holds, in the order of their pull; at most <c>workers</c> of them in
    /// handlers, and of one key at most one. No I/O; its user guards it by a lock.</summary>
    /// <remarks>A lease is extended once less than two thirds of it are left, and then all that have less than five
    /// sixths left go with it. With a look each sixth of a lease nothing has less than half of its lease left, unless
    /// the extension fails.</remarks>
    internal sealed class HeldLeases
    {
        private const double LeaseUnknownMs = 10_000; // neither the consumer names a lease time nor the proxy tells it

        private readonly double extendMsMax;
        private readonly int workers;
        private readonly List<Held> waiting = new List<Held>();
        private readonly HashSet<Held> busy = new HashSet<Held>();
        private double? handlingMs; // moving average; null: nothing was handled yet

        internal HeldLeases(double extendMsMax, int workers)
        {
            this.extendMsMax = extendMsMax;
            this.workers = workers;
        }

        /// <summary>What a lease has at least; assumed until the first answer.</summary>
        internal double LeaseMs { get; private set; } = 1_000;

        /// <summary>The interval of looks at what has to be extended or acknowledged.</summary>
        internal double LookMs => LeaseMs / 6;

        internal bool IsBusy => busy.Count > 0;

        /// <summary>Whether a worker is free for what a pull brings: nothing waits here for it.</summary>
        internal bool HasRoom => busy.Count == 0 || (busy.Count < workers && waiting.Count == 0);

        /// <summary>The number of messages to ask for: what the free workers handle in a third of a lease, by the
        /// time so far.</summary>
        internal int Wanted(int most)
        {
            double each = handlingMs is double one ? Math.Max(1, Math.Floor(LeaseMs / 3 / Math.Max(one, 1e-3))) : 1;
            return (int)Math.Max(1, Math.Min(most, each * (workers - busy.Count)));
        }

        /// <param name="leaseMs">0: unknown</param>
        internal void Pulled(List<Delivery> deliveries, double leaseMs, double nowMs)
        {
            LeaseMs = leaseMs > 0 ? leaseMs : LeaseUnknownMs;
            waiting.AddRange(deliveries.Select(each => new Held(each, nowMs, nowMs + LeaseMs)));
        }

        /// <summary>The next delivery to handle; null when there is none, no worker is free or those that wait have
        /// keys in handlers. Those whose lease has ended are dropped, as others may have them by now.</summary>
        internal Held? Begin(double nowMs)
        {
            if (busy.Count >= workers)
            {
                return null;
            }
            waiting.RemoveAll(each => each.IsLost || each.UntilMs <= nowMs);
            var keys = new HashSet<object>(busy.Select(each => each.Key));
            int first = waiting.FindIndex(each => !keys.Contains(each.Key));
            if (first < 0)
            {
                return null;
            }
            Held begun = waiting[first];
            waiting.RemoveAt(first);
            busy.Add(begun);
            return begun;
        }

        /// <summary>The handler has returned.</summary>
        internal void End(Held held, double tookMs)
        {
            busy.Remove(held);
            handlingMs = handlingMs == null ? tookMs : 0.75 * handlingMs + 0.25 * tookMs;
        }

        /// <summary>Whether a lease has to be extended now.</summary>
        internal bool IsDue(double nowMs) => Older(LeaseMs * 2 / 3, nowMs).Count > 0;

        internal List<Held> ToExtend(double nowMs) => Older(LeaseMs * 5 / 6, nowMs);

        /// <summary>What became of the extensions that were sent behind so many acknowledgements.</summary>
        internal void Extended(List<Held> extended, int first, PullResponse response, double sentAtMs)
        {
            foreach ((Held held, AckResult result) in extended.Zip(response.AckResults.Skip(first), (a, b) => (a, b)))
            {
                if (result.Code.Action() == CodeAction.Done)
                {
                    held.UntilMs = sentAtMs + LeaseMs;
                }
                else
                {
                    held.IsLost |= WaitingAcks.IsRefused(result, response);
                }
            }
        }

        /// <summary>Lets go of all that no handler has seen.</summary>
        internal List<Delivery> Release()
        {
            List<Delivery> released = waiting.Where(each => !each.IsLost).Select(each => each.Delivery).ToList();
            waiting.Clear();
            return released;
        }

        private List<Held> Older(double leftMs, double nowMs) => waiting.Concat(busy)
            .Where(each => !each.IsLost && each.UntilMs - nowMs < leftMs && nowMs - each.SinceMs < extendMsMax)
            .ToList();

        /// <summary>One delivery that is not yet acknowledged.</summary>
        internal sealed class Held
        {
            internal Held(Delivery delivery, double sinceMs, double untilMs)
            {
                Delivery = delivery;
                SinceMs = sinceMs;
                UntilMs = untilMs;
                // Messages without a key have no order: each counts as a key of its own.
                Key = delivery.Message.Key == null ? (object)this : (delivery.Message.Topic, delivery.Message.Key);
            }

            internal Delivery Delivery { get; }

            internal object Key { get; }

            internal double SinceMs { get; }

            /// <summary>The end of its lease.</summary>
            internal double UntilMs { get; set; }

            /// <summary>Its extension was refused.</summary>
            internal bool IsLost { get; set; }
        }
    }
}
