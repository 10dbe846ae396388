using System;

namespace Penstock.Client
{
    /// <summary>A refusal, or an outcome that is not success, after all retries.</summary>
    public class PenstockException : Exception
    {
        internal PenstockException(Code code, string? reason, string? messageId = null)
            : base(code.Name() + ": " + (reason ?? "no reason given")
                + (messageId == null ? "" : " (message id " + messageId + ")"))
        {
            Code = code;
            MessageId = messageId;
        }

        private protected PenstockException(string reason) : base(reason) => Code = (Code)(-1);

        /// <summary>The result code, maybe one that is newer than this client; -1 for a
        /// <see cref="ContractException"/>.</summary>
        public Code Code { get; }

        /// <summary>The message may have been stored all the same: send it again only with the same
        /// <see cref="MessageId"/>.</summary>
        public bool MaybeStored => Code >= 0 && Code.Action() == CodeAction.Unknown;

        /// <summary>The id that the message was sent with; null for a pull.</summary>
        public string? MessageId { get; }
    }

    /// <summary>No endpoint implements this contract: none is such a proxy. Nothing is stored, and retrying cannot
    /// help.</summary>
    public sealed class ContractException : PenstockException
    {
        internal ContractException(string reason, bool sent) : base(reason) => Sent = sent;

        internal bool Sent { get; } // a proxy may have done the call
    }

    /// <summary>A batching producer holds as much as it may. The message was not taken.</summary>
    public sealed class FullException : Exception
    {
        internal FullException(string reason) : base(reason) { }
    }

    /// <summary>One call at one endpoint brought no answer of the contract. Unless <c>Sent</c>, no proxy has done
    /// it.</summary>
    internal sealed class CallFailed : Exception
    {
        internal CallFailed(string reason, Exception? cause, bool sent) : base(reason, cause) => Sent = sent;

        internal bool Sent { get; }
    }
}
