using System;

namespace Penstock.Client
{
    /// <summary>Called as things happen, by the thread concerned: return soon and do not throw.</summary>
    public interface IPenstockMetrics
    {
        /// <summary>One attempt at one proxy has ended. The failure is null for an answer, whatever its
        /// code.</summary>
        void Call(string method, string endpoint, TimeSpan took, Exception? failure) { }

        /// <summary>The final outcome of one message, after all retries.</summary>
        void Sent(SendOutcome outcome) { }

        /// <summary>A handler of a run has ended.</summary>
        void Handled(Delivery delivery, Verdict verdict, TimeSpan took) { }
    }
}
