using System;
using System.Collections.Generic;
using System.Linq;

namespace Penstock.Client
{
    /// <summary>One message of a batch. Invariant: one whose outcome was once unknown is reported as unknown
    /// (TIMEOUT) unless a later answer tells that it is stored. A later refusal applies only to that attempt.</summary>
    internal sealed class SendEntry
    {
        private readonly object key; // without one the message is a key of its own
        private readonly bool isRequest;
        private bool isMaybeStored;
        private string? error = "no proxy could be reached before the deadline";
        private SendResult? answer;
        private double dueAtMs;

        /// <param name="isRequest">a reply is waited for</param>
        internal SendEntry(Message message, double dueAtMs, bool isRequest)
        {
            Message = message;
            this.isRequest = isRequest;
            key = message.Key == null ? (object)this : (message.Topic, message.Key);
            this.dueAtMs = dueAtMs;
        }

        internal Message Message { get; }

        internal int Attempts { get; private set; }

        internal bool IsSettled { get; private set; }

        /// <summary>Whether it was answered for good, or may be stored.</summary>
        internal bool HasOutcome => IsSettled || isMaybeStored;

        internal Code Code { get; private set; } = Code.UNAVAILABLE;

        /// <summary>About how many bytes the message takes in a request.</summary>
        internal long SizeBytes => 200 + Message.Topic.Length + (Message.Body?.Length ?? 0)
            + 4L * (Message.Key?.Length ?? 0)
            + (Message.Properties?.Sum(each => 8 + 4L * (each.Key.Length + each.Value.Length)) ?? 0);

        /// <summary>Checks a message that is to be sent, and gives it an id if it has none.</summary>
        internal static void Prepare(Message message)
        {
            if (string.IsNullOrEmpty(message.Topic))
            {
                throw new ArgumentException("message topic: missing");
            }
            if (string.IsNullOrEmpty(message.Id))
            {
                message.Id = Guid.NewGuid().ToString("N");
            }
        }

        /// <summary>The messages to send now. One waits while an earlier one of its key does: so a key keeps its
        /// order over retries. It holds because a proxy that refuses a message stores none of its key's later
        /// messages of the same call.</summary>
        internal static List<SendEntry> Due(List<SendEntry> open, double nowMs)
        {
            var held = new HashSet<object>();
            var due = new List<SendEntry>();
            foreach (SendEntry each in open)
            {
                if (each.dueAtMs <= nowMs && !held.Contains(each.key))
                {
                    due.Add(each);
                }
                else
                {
                    held.Add(each.key);
                }
            }
            return due;
        }

        /// <summary>When the first message may be sent.</summary>
        internal static double NextDueMs(List<SendEntry> open)
        {
            var seen = new HashSet<object>();
            return open.Where(each => seen.Add(each.key)).Min(each => each.dueAtMs);
        }

        internal void Answered(SendResult result, double nowMs, Func<int, double> backoffMs)
        {
            Attempts++;
            answer = result;
            Code = result.Code;
            error = result.Error;
            CodeAction action = Code.Action();
            if (isMaybeStored
                && (action == CodeAction.Refused || action == CodeAction.Later || action == CodeAction.Elsewhere))
            {
                // What it says, also "not stored", is about this attempt alone.
                string told = string.IsNullOrEmpty(error) ? "" : $"; the last one was answered: {error}";
                error = $"an earlier attempt may have stored it{told}";
                Code = action == CodeAction.Refused ? Code.TIMEOUT : Code;
            }
            if (isRequest && Code == Code.DUPLICATE && result.Reply == null)
            {
                Code = Code.TIMEOUT;
                error = "stored by an earlier attempt, whose reply cannot be had";
            }
            if (action == CodeAction.Elsewhere)
            {
                dueAtMs = nowMs;
            }
            else if (action == CodeAction.Later || action == CodeAction.Unknown)
            {
                dueAtMs = nowMs + PauseMs(Code, result.RetryAfterMs, backoffMs(Attempts));
                isMaybeStored |= action == CodeAction.Unknown;
            }
            else
            {
                IsSettled = true;
            }
        }

        /// <summary>No answer came. It is due again at once: the pool has set that proxy aside.</summary>
        internal void Failed(string reason, bool sent, double nowMs)
        {
            Attempts += sent ? 1 : 0;
            isMaybeStored |= sent;
            error = reason;
            dueAtMs = nowMs;
        }

        internal SendOutcome Outcome()
        {
            if (!IsSettled)
            {
                return new SendOutcome(isMaybeStored ? Code.TIMEOUT : Code, Message.Id, error, Attempts);
            }
            return new SendOutcome(Code, answer!.Id ?? Message.Id, error, Attempts, answer);
        }

        /// <summary>The pause after a refusal: what the proxy told (0: nothing) or the back-off, whichever is longer.
        /// At a rate limit the proxy has promised a slot, which a longer pause would miss.</summary>
        internal static double PauseMs(Code code, int toldMs, double backoffMs) =>
            toldMs > 0 && code == Code.RATE_LIMITED ? toldMs : Math.Max(toldMs, backoffMs);
    }
}
