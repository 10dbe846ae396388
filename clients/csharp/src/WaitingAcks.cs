using System.Collections.Generic;
using System.Linq;

namespace Penstock.Client
{
    /// <summary>Acknowledgements that wait for the next pull. Its user guards it by a lock.</summary>
    internal sealed class WaitingAcks
    {
        private readonly List<Ack> acks = new List<Ack>();
        private double oldestAtMs;

        /// <summary>Late or invalid: their messages are redelivered.</summary>
        internal int Refused { get; private set; }

        internal static Ack New(Delivery delivery, Verdict verdict)
        {
            var ack = new Ack(delivery.Receipt);
            if (verdict != Verdict.DONE)
            {
                ack.Verdict = verdict;
            }
            return ack;
        }

        internal void Add(Ack ack)
        {
            if (acks.Count == 0)
            {
                oldestAtMs = PenstockOptions.NowMs;
            }
            acks.Add(ack);
        }

        /// <summary>Whether some have waited here for so long.</summary>
        internal bool IsDue(double waitMs) => acks.Count > 0 && PenstockOptions.NowMs - oldestAtMs >= waitMs;

        internal List<Ack> ToSend() => acks.ToList();

        /// <summary>Drops what is settled of the first acknowledgements, which were sent; the others go with the next
        /// pull.</summary>
        internal void Settle(int sent, PullResponse response)
        {
            List<AckResult> results = response.AckResults;
            var again = new List<Ack>();
            for (int i = 0; i < sent; i++)
            {
                if (i < results.Count && IsRefused(results[i], response))
                {
                    Refused++;
                }
                else if (i >= results.Count || results[i].Code.Action() != CodeAction.Done)
                {
                    again.Add(acks[i]);
                }
            }
            acks.RemoveRange(0, sent);
            acks.InsertRange(0, again);
            oldestAtMs = PenstockOptions.NowMs;
        }

        /// <summary>A refused pull's acknowledgements have codes of their own. Those with the pull's code were not
        /// looked at.</summary>
        internal static bool IsRefused(AckResult result, PullResponse response) =>
            result.Code.Action() == CodeAction.Refused && result.Code != response.Code;
    }
}
