package main

import "flag"

// What to do, as bench/peers/driver.py says it. The meanings are those of the Java driver's Options.
type options struct {
	servers           string
	loop              string
	threads, clients  int
	topics, queues    int
	size              int
	rate              float64
	warmupS, secondsS float64
}

func parseOptions() options {
	var o options
	flag.String("system", "nats", "the only one there is here")
	flag.Int("batch", 1, "a publish carries one message")
	flag.StringVar(&o.servers, "servers", "", "host:port")
	flag.StringVar(&o.loop, "loop", "sync", "sync or pipelined")
	flag.IntVar(&o.threads, "threads", 16, "")
	flag.IntVar(&o.clients, "clients", 16, "connections; threads share them evenly")
	flag.IntVar(&o.topics, "topics", 16, "streams")
	flag.IntVar(&o.queues, "queues", 8, "subjects of each stream")
	flag.IntVar(&o.size, "size", 128, "bytes of a body")
	flag.Float64Var(&o.rate, "rate", 0, "calls a second, planned ahead; 0: closed loop")
	flag.Float64Var(&o.warmupS, "warmup", 0, "")
	flag.Float64Var(&o.secondsS, "seconds", 5, "")
	flag.Parse()
	return o
}
