using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Penstock.Client;

namespace Penstock.Examples
{
    /// <summary>Runs a program: <c>programs.dll send --endpoints … BODY…</c>. Exit code 1 after an error, 2
    /// for bad arguments.</summary>
    internal static class Programs
    {
        private static readonly Dictionary<string, Func<string[], Task<int>>> All =
            new Dictionary<string, Func<string[], Task<int>>>
            {
                ["send"] = SendAndPull.SendAsync,
                ["pull"] = SendAndPull.PullAsync,
                ["request"] = Requests.RequestAsync,
                ["reply"] = Requests.ReplyAsync,
                ["work"] = Work.RunAsync,
                ["demo_producer"] = DemoProducer.RunAsync,
                ["demo_consumer"] = DemoConsumer.RunAsync,
                ["conformance"] = Conformance.RunAsync,
            };

        internal static int Main(string[] arguments)
        {
            int status = RunAsync(arguments).GetAwaiter().GetResult();
            Environment.ExitCode = status; // what a signal's end takes
            ended.Set();
            return status;
        }

        private static readonly ManualResetEventSlim ended = new ManualResetEventSlim();

        /// <summary>A token that SIGTERM and SIGINT cancel; the program then ends by itself, with its own exit
        /// code.</summary>
        internal static CancellationToken OnSignal()
        {
            var signalled = new CancellationTokenSource();
            AppDomain.CurrentDomain.ProcessExit += (sender, exit) =>
            {
                signalled.Cancel();
                ended.Wait(); // the process ends when this returns
            };
            Console.CancelKeyPress += (sender, key) =>
            {
                key.Cancel = true;
                signalled.Cancel();
            };
            return signalled.Token;
        }

        private static async Task<int> RunAsync(string[] arguments)
        {
            if (arguments.Length == 0 || !All.TryGetValue(arguments[0], out Func<string[], Task<int>>? program))
            {
                Console.Error.WriteLine("PROGRAM: unknown: use one of " + string.Join(", ", All.Keys));
                return 2;
            }
            try
            {
                return await program(arguments.Skip(1).ToArray());
            }
            catch (ArgumentException error)
            {
                Console.Error.WriteLine(error.Message);
                return 2;
            }
            catch (Exception error) when (error is PenstockException || error is IOException)
            {
                Console.Error.WriteLine(error.Message);
                return 1;
            }
            finally
            {
                Arguments.Out.Flush();
            }
        }
    }
}
