// Package penstock is a thin client of the Penstock message gateway, on Apache Thrift's stock Go library.
//
// A Producer sends and retries by result code; a Consumer pulls and acknowledges on the next pull. Both spread over
// several proxies and are safe for use by many goroutines.
package penstock

//go:generate mkdir -p gen
//go:generate thrift --gen go:skip_remote -out gen ../../thrift/message.thrift
//go:generate thrift --gen go:skip_remote -out gen ../../thrift/producer.thrift
//go:generate thrift --gen go:skip_remote -out gen ../../thrift/consumer.thrift

import (
	"crypto/tls"
	"log"
	"math/rand"
	"strings"
	"time"
)

// Config holds the proxies' addresses and the caller's credential. Zero values of the settings below Secret mean the
// defaults given.
type Config struct {
	Endpoints []string // "host:port" each
	App       string
	KeyID     string
	Secret    string

	// 10 s: for one Send with all its retries; a Pull or a Request adds it to its wait. A call may take 500 ms more for an
	// answer.
	Deadline       time.Duration
	CallTimeout    time.Duration // 3 s: for one attempt at one proxy; shorter finds a hung proxy sooner, and retries more
	ConnectTimeout time.Duration // 1 s, with the TLS handshake; less when the deadline comes before
	Buffered       bool          // buffered transport in place of framed; Penstock takes both on one port
	TLS            *tls.Config   // nil: plain TCP
	BackoffFirst   time.Duration // 50 ms: doubled with each failure, with jitter
	BackoffMax     time.Duration // 2 s
	CredentialUse  time.Duration // 60 s: one minted credential is used this long; proxies take it for 300 s
	IdleConns      int           // 8: kept open per proxy; more are made when needed and closed after use
	IdleTime       time.Duration // 30 s: an older idle connection may have been closed by the proxy
	OutageMax      time.Duration // 10 min: Run ends when no pull has succeeded for so long; negative: never
	ExtendMax      time.Duration // 1 h: Run extends no lease beyond this; a handler that hangs loses its message then
	Tell           func(string)  // log.Print: is called with outages and topics that give nothing
	Metrics        Metrics
}

// Metrics are functions that are called as things happen, by the goroutine concerned: return soon. Each may be nil.
type Metrics struct {
	// Call: one attempt at one proxy has ended. The error is nil for an answer, whatever its code.
	Call func(method, endpoint string, took time.Duration, err error)
	// Sent: the final outcome of one message, after all retries.
	Sent func(Result)
	// Handled: a handler of Run has ended.
	Handled func(*Delivery, Verdict, time.Duration)
}

// ParseEndpoints splits "host:port,host:port".
func ParseEndpoints(list string) []string {
	var endpoints []string
	for _, endpoint := range strings.Split(list, ",") {
		if endpoint = strings.TrimSpace(endpoint); endpoint != "" {
			endpoints = append(endpoints, endpoint)
		}
	}
	return endpoints
}

func (c Config) withDefaults() Config {
	orDuration(&c.Deadline, 10*time.Second)
	orDuration(&c.CallTimeout, 3*time.Second)
	orDuration(&c.ConnectTimeout, time.Second)
	orDuration(&c.BackoffFirst, 50*time.Millisecond)
	orDuration(&c.BackoffMax, 2*time.Second)
	orDuration(&c.CredentialUse, time.Minute)
	orDuration(&c.IdleTime, 30*time.Second)
	orDuration(&c.OutageMax, 10*time.Minute)
	orDuration(&c.ExtendMax, time.Hour)
	if c.Tell == nil {
		c.Tell = func(sentence string) { log.Print("penstock: " + sentence) }
	}
	orInt(&c.IdleConns, 8)
	return c
}

func orDuration(value *time.Duration, standard time.Duration) {
	if *value == 0 {
		*value = standard
	}
}

func orInt(value *int, standard int) {
	if *value == 0 {
		*value = standard
	}
}

// pause follows a refusal: what the proxy told or the back-off, whichever is longer. At a rate limit the proxy has
// promised a slot, which a longer pause would miss.
func pause(code Code, toldMs int32, backoff time.Duration) time.Duration {
	told := time.Duration(toldMs) * time.Millisecond
	if told > 0 && code == RateLimited {
		return told
	}
	return max(told, backoff)
}

// backoff is the pause after the n-th failure in a row: a random point in the upper half of a doubling pause.
func (c Config) backoff(failures int) time.Duration { return c.backoffAt(failures, rand.Float64()) }

// backoffAt is backoff with the chance, from 0 to 1, drawn by the caller.
func (c Config) backoffAt(failures int, chance float64) time.Duration {
	pause := c.BackoffMax
	if failures < 30 && c.BackoffFirst<<(failures-1) < pause {
		pause = c.BackoffFirst << (failures - 1)
	}
	return pause/2 + time.Duration(chance*float64(pause/2))
}
