namespace Penstock.Client
{
    /// <summary>What a caller should do about a result code, by its hundreds digit, so codes newer than this client
    /// work too.</summary>
    public enum CodeAction
    {
        /// <summary>Stored.</summary>
        Done,

        /// <summary>The request is wrong: do not retry it unchanged.</summary>
        Refused,

        /// <summary>Not stored: retry after a pause.</summary>
        Later,

        /// <summary>May be stored: retry with the same id.</summary>
        Unknown,

        /// <summary>Not stored: retry at once, at another proxy.</summary>
        Elsewhere,

        /// <summary>Stored, but the reply did not come.</summary>
        NoReply,
    }

    public static class CodeActions
    {
        /// <summary>The action for a code; an undefined hundreds digit is Unknown, the safe choice.</summary>
        public static CodeAction Action(this Code code)
        {
            int number = (int)code;
            return number >= 0 && number < 600 ? (CodeAction)(number / 100) : CodeAction.Unknown;
        }

        /// <summary>The code's name in the contract; "code N" for one that is newer than this client.</summary>
        internal static string Name(this Code code) =>
            System.Enum.IsDefined(typeof(Code), code) ? code.ToString() : "code " + (int)code;
    }
}
