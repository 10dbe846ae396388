// Reply answers requests with "re: " and what they asked, until none has come for -wait-ms.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	penstock "penstock.io/client"
	"penstock.io/client/internal/flags"
)

func main() {
	common := flags.Register()
	group := flag.String("group", "", "consumer group")
	replyTo := flag.String("reply-endpoints", "", "HOST:PORT[,HOST:PORT] of the producer proxies that take the replies")
	wait := flag.Int("wait-ms", 1000, "how long to wait for more")
	flag.Parse()
	config := common.Config()
	consumer, err := penstock.NewConsumer(penstock.ConsumerConfig{Config: config, Group: *group, Topics: []string{common.Topic}})
	flags.Check(err)
	config.Endpoints = penstock.ParseEndpoints(*replyTo)
	producer, err := penstock.NewProducer(config)
	flags.Check(err)
	ctx := context.Background()
	for {
		deliveries, err := consumer.Pull(ctx, 32, time.Duration(*wait)*time.Millisecond)
		flags.Check(err)
		if len(deliveries) == 0 {
			break
		}
		for _, d := range deliveries {
			if d.ReplyToken != nil {
				if _, err := producer.Reply(ctx, d, append([]byte("re: "), d.Message.Body...)); err != nil {
					fmt.Fprintln(os.Stderr, err) // mostly because the asker has gone
				}
			}
			consumer.Done(d)
		}
	}
	flags.Check(consumer.Close())
	flags.Check(producer.Close())
}
