using System;
using System.Collections.Generic;
using System.Linq;

namespace Penstock.Client
{
    /// <summary>The topics that give nothing, told once per change.</summary>
    internal sealed class UnservedTopics
    {
        private readonly IReadOnlyList<string> named;
        private readonly Action<string> tell;

        internal UnservedTopics(IReadOnlyList<string> named, Action<string> tell)
        {
            this.named = named.Count == 0 ? new[] { "(the group's)" } : named;
            this.tell = tell;
        }

        /// <summary>Of the last pull, with the reason of each.</summary>
        internal IReadOnlyDictionary<string, string> Reasons { get; private set; } = new Dictionary<string, string>();

        internal void Take(PullResponse response)
        {
            var unserved = new Dictionary<string, string>();
            if (response.Code.Action() == CodeAction.Done)
            {
                response.Topics?.ForEach(each => unserved[each.Topic] = Reason(each.Code, each.Error));
            }
            else if (response.Code == Code.UNKNOWN_TOPIC)
            {
                unserved = named.ToDictionary(each => each, each => Reason(response.Code, response.Error));
            }
            else
            {
                return;
            }
            IReadOnlyDictionary<string, string> before = Reasons;
            Reasons = unserved;
            foreach (KeyValuePair<string, string> each in unserved.Where(each => !before.ContainsKey(each.Key)))
            {
                tell($"topic {each.Key} gives nothing: {each.Value}");
            }
            foreach (string topic in before.Keys.Where(each => !unserved.ContainsKey(each)))
            {
                tell($"topic {topic} is served again");
            }
        }

        private static string Reason(Code code, string? error) => $"{code.Name()}: {error ?? "no reason given"}";
    }
}
