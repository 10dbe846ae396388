// Demo_consumer pulls until -count different lines have come, or SIGTERM; prints a line per delivery and acknowledges
// all.
//
// A line is: line number, key, queue, offset, attempt, SHA-256 of the body in hex; separated by tabs. A message that is
// delivered twice is printed twice and counted once.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	penstock "penstock.io/client"
	"penstock.io/client/internal/flags"
)

func main() {
	common := flags.Register()
	group := flag.String("group", "", "consumer group")
	count := flag.Int("count", 0, "how many different lines to wait for")
	most := flag.Int("max", 256, "messages per pull")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	consumer, err := penstock.NewConsumer(penstock.ConsumerConfig{
		Config: common.Config(), Group: *group, Topics: []string{common.Topic},
	})
	flags.Check(err)

	out := bufio.NewWriterSize(os.Stdout, 1<<16)
	seen := make(map[string]struct{}, *count)
	for len(seen) < *count && ctx.Err() == nil {
		deliveries, err := consumer.Pull(ctx, *most, time.Second)
		if err != nil && !errors.Is(err, context.Canceled) {
			flags.Fail(err)
		}
		for _, d := range deliveries {
			line := d.Message.Properties["line"]
			seen[line] = struct{}{}
			fmt.Fprintf(out, "%s\t%s\t%d\t%d\t%d\t%x\n",
				line, d.Message.Key, d.Queue, d.Offset, d.Attempt, sha256.Sum256(d.Message.Body))
			consumer.Done(d)
		}
		flags.Check(out.Flush())
	}
	flags.Check(consumer.Close())
}
