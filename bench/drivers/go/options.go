package main

import (
	"flag"
	"fmt"
)

// Options, as bench/peers/driver.py passes them. The meanings are those of the Java driver's Options.
type options struct {
	servers           string
	loop              string
	threads, clients  int
	prefix            string
	topics, queues    int
	size              int
	copies            int
	rate              float64
	warmupS, secondsS float64
}

func parseOptions() options {
	var o options
	flag.String("system", "nats", "the only one there is here")
	flag.Int("batch", 1, "a publish carries one message")
	for _, name := range []string{"consumers", "most", "fill", "patience"} {
		flag.Int(name, 0, "not for this system")
	}
	flag.StringVar(&o.servers, "servers", "", "host:port")
	flag.StringVar(&o.loop, "loop", "sync", "sync, pipelined or steady")
	flag.IntVar(&o.threads, "threads", 16, "")
	flag.IntVar(&o.clients, "clients", 16, "connections; threads share them evenly")
	flag.StringVar(&o.prefix, "prefix", "bench-", "of the streams' names")
	flag.IntVar(&o.topics, "topics", 16, "streams")
	flag.IntVar(&o.queues, "queues", 8, "subjects of each stream")
	flag.IntVar(&o.size, "size", 128, "bytes of a body")
	flag.IntVar(&o.copies, "copies", 1, "of each message, on as many servers")
	flag.Float64Var(&o.rate, "rate", 0, "calls a second, planned ahead; 0: closed loop")
	flag.Float64Var(&o.warmupS, "warmup", 0, "")
	flag.Float64Var(&o.secondsS, "seconds", 5, "")
	flag.Parse()
	return o
}

func (o options) topic(number int) string { return fmt.Sprintf("%s%d", o.prefix, number) }
