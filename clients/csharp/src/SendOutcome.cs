namespace Penstock.Client
{
    /// <summary>The outcome of one message after all retries.</summary>
    public sealed class SendOutcome
    {
        internal SendOutcome(Code code, string id, string? error, int attempts, SendResult? stored = null)
        {
            Code = code;
            Id = id;
            Error = error;
            Attempts = attempts;
            Queue = stored != null && stored.__isset.queue ? stored.Queue : (int?)null;
            Offset = stored != null && stored.__isset.offset ? stored.Offset : (long?)null;
            Reply = stored?.Reply;
        }

        /// <summary>A proxy may answer codes that are newer than this client.</summary>
        public Code Code { get; }

        /// <summary>The message's own id or the given one.</summary>
        public string Id { get; }

        /// <summary>Null unless stored.</summary>
        public int? Queue { get; }

        /// <summary>In the queue; null unless stored, and while the message is in the fallback buffer
        /// (BUFFERED).</summary>
        public long? Offset { get; }

        /// <summary>One sentence; null when stored.</summary>
        public string? Error { get; }

        /// <summary>The reply to a request that was answered; else null.</summary>
        public Message? Reply { get; }

        /// <summary>How many attempts reached a proxy.</summary>
        public int Attempts { get; }

        /// <summary>Stored. A request whose reply did not come is stored too, but not ok.</summary>
        public bool Ok => Code.Action() == CodeAction.Done;

        internal PenstockException Exception() => new PenstockException(Code, Error, Id);
    }
}
