// Send sends each argument as one message.
package main

import (
	"context"
	"flag"
	"fmt"

	penstock "penstock.io/client"
	"penstock.io/client/internal/flags"
)

func main() {
	common := flags.Register()
	key := flag.String("key", "", "same key, same queue")
	flag.Parse()
	producer, err := penstock.NewProducer(common.Config())
	flags.Check(err)
	defer producer.Close()
	for _, body := range flag.Args() {
		result, err := producer.Send(context.Background(), &penstock.Message{Topic: common.Topic, Key: *key, Body: []byte(body)})
		flags.Check(err)
		fmt.Printf("%s\t%d\t%d\n", result.ID, result.Queue, result.Offset)
	}
}
