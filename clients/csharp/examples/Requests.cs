using System;
using System.Collections.Generic;
using System.Text;
using System.Threading.Tasks;
using Penstock.Client;

namespace Penstock.Examples
{
    /// <summary>Asks with each argument and prints the replies; answers requests with "re: " and what they
    /// asked.</summary>
    internal static class Requests
    {
        internal static async Task<int> RequestAsync(string[] line)
        {
            var given = new Arguments(line, "wait-ms");
            await using PenstockProducer producer = given.Producer();
            foreach (string body in given.Rest)
            {
                var question = new Message { Topic = given.Text("topic"), Body = Encoding.UTF8.GetBytes(body) };
                Message reply = await producer.RequestAsync(question, given.Ms("wait-ms", 5_000));
                Arguments.Out.WriteLine(Encoding.UTF8.GetString(reply.Body));
            }
            return 0;
        }

        /// <summary>Until no request has come for --wait-ms.</summary>
        internal static async Task<int> ReplyAsync(string[] line)
        {
            var given = new Arguments(line, "group", "reply-endpoints", "wait-ms");
            TimeSpan wait = given.Ms("wait-ms", 1_000);
            await using PenstockConsumer consumer = given.Consumer(given.Options());
            await using PenstockProducer producer = given.Producer("reply-endpoints");
            IReadOnlyList<Delivery> pulled;
            while ((pulled = await consumer.PullAsync(32, wait)).Count > 0)
            {
                foreach (Delivery each in pulled)
                {
                    await AnswerAsync(producer, each);
                    consumer.Done(each);
                }
            }
            return 0;
        }

        private static async Task AnswerAsync(PenstockProducer producer, Delivery delivery)
        {
            if (delivery.ReplyToken != null)
            {
                try
                {
                    string asked = Encoding.UTF8.GetString(delivery.Message.Body);
                    await producer.ReplyAsync(delivery, Encoding.UTF8.GetBytes("re: " + asked));
                }
                catch (PenstockException error)
                {
                    Console.Error.WriteLine(error.Message); // mostly because the caller no longer waits
                }
            }
        }
    }
}
