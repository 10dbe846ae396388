using System;
using System.Collections.Generic;
using System.Text;
using System.Threading.Tasks;
using Penstock.Client;

namespace Penstock.Examples
{
    /// <summary>Sends each argument as one message; prints messages until none has come for --wait-ms, and
    /// acknowledges them.</summary>
    internal static class SendAndPull
    {
        internal static async Task<int> SendAsync(string[] line)
        {
            var given = new Arguments(line, "key");
            await using PenstockProducer producer = given.Producer();
            foreach (string body in given.Rest)
            {
                var message = new Message { Topic = given.Text("topic"), Body = Encoding.UTF8.GetBytes(body) };
                message.Key = given.TextOrNull("key");
                SendOutcome stored = await producer.SendAsync(message);
                Arguments.Out.WriteLine($"{stored.Id}\t{stored.Queue}\t{stored.Offset}");
            }
            return 0;
        }

        internal static async Task<int> PullAsync(string[] line)
        {
            var given = new Arguments(line, "group", "wait-ms");
            TimeSpan wait = given.Ms("wait-ms", 1_000);
            await using PenstockConsumer consumer = given.Consumer(given.Options());
            IReadOnlyList<Delivery> pulled;
            while ((pulled = await consumer.PullAsync(32, wait)).Count > 0)
            {
                foreach (Delivery each in pulled)
                {
                    string body = Encoding.UTF8.GetString(each.Message.Body ?? Array.Empty<byte>());
                    Arguments.Out.WriteLine($"{each.Queue}\t{each.Offset}\t{each.Attempt}\t{each.Message.Key}\t{body}");
                    consumer.Done(each);
                }
            }
            return 0;
        }
    }
}
