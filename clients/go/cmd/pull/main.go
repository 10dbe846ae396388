// Pull prints messages until none has come for -wait-ms, and acknowledges them.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	penstock "penstock.io/client"
	"penstock.io/client/internal/flags"
)

func main() {
	common := flags.Register()
	group := flag.String("group", "", "consumer group")
	wait := flag.Int("wait-ms", 1000, "how long to wait for more")
	flag.Parse()
	consumer, err := penstock.NewConsumer(penstock.ConsumerConfig{
		Config: common.Config(), Group: *group, Topics: []string{common.Topic},
	})
	flags.Check(err)
	for {
		deliveries, err := consumer.Pull(context.Background(), 32, time.Duration(*wait)*time.Millisecond)
		flags.Check(err)
		if len(deliveries) == 0 {
			break
		}
		for _, d := range deliveries {
			fmt.Printf("%d\t%d\t%d\t%s\t%s\n", d.Queue, d.Offset, d.Attempt, d.Message.Key, d.Message.Body)
			consumer.Done(d)
		}
	}
	flags.Check(consumer.Close())
}
