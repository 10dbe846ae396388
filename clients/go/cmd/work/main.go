// Work handles messages by Consumer.Run, each for -handle-ms, until SIGTERM; prints one line per handled message.
//
// A line is: topic, queue, offset, attempt; separated by tabs. The last line is a JSON object of counts.
package main

import (
	"context"
	"flag"
	"fmt"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	penstock "penstock.io/client"
	"penstock.io/client/internal/flags"
)

func main() {
	common := flags.Register()
	group := flag.String("group", "", "consumer group")
	handling := flag.Int("handle-ms", 0, "how long a message is handled")
	lease := flag.Int("lease-ms", 0, "lease time; 0: the group's setting")
	outage := flag.Int("outage-ms", 600_000, "end when no pull has succeeded for so long")
	workers := flag.Int("workers", 1, "handlers at a time")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	config := common.Config()
	config.OutageMax = time.Duration(*outage) * time.Millisecond
	consumer, err := penstock.NewConsumer(penstock.ConsumerConfig{
		Config: config, Group: *group, Topics: strings.Split(common.Topic, ","),
		Invisible: time.Duration(*lease) * time.Millisecond, Workers: *workers,
	})
	flags.Check(err)
	var handled, busy, busiest int
	var mu sync.Mutex
	flags.Check(consumer.Run(ctx, 32, func(_ context.Context, d *penstock.Delivery) (penstock.Verdict, error) {
		mu.Lock()
		if busy++; busy > busiest {
			busiest = busy
		}
		mu.Unlock()
		time.Sleep(time.Duration(*handling) * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		busy--
		fmt.Printf("%s\t%d\t%d\t%d\n", d.Message.Topic, d.Queue, d.Offset, d.Attempt)
		handled++
		return penstock.VerdictDone, nil
	}))
	flags.Check(consumer.Close())
	fmt.Printf("{\"handled\": %d, \"refused\": %d, \"busiest\": %d}\n", handled, consumer.AcksRefused(), busiest)
}
